/* The loops of the 2018 report with the C client, hiredis; bench/c_programs.py compiles and runs it.
 *
 *     hiredis_c SOCKET METHOD COUNT BATCH VALUE [PID]
 *
 * SOCKET is a unix socket, or a port on the loopback.
 *
 * The program prints the seconds of the loop, without connecting, and the number of items pushed or
 * popped, or of PINGs answered. A popped item counts if it has the length of VALUE.
 *
 * With two methods, such as lpush-pipeline/lrange, the program pushes and pops BATCH items in turn,
 * COUNT items in total. It prints the seconds of the pushes and of the pops, the CPU seconds of the
 * main thread of process PID during the pushes and during the pops (0 where the system does not
 * report them), and the numbers of pushed and popped items. LRANGE then reads 100 items at a time.
 *
 * lrange waits for each reply before the next request; lrange-pipeline has ten requests in flight.
 * lpush-many and rpop-many have BATCH items in one command.
 *
 * set-milliseconds is the busy loop that redis.io warns of: SET foo bar, one by one, for COUNT ms.
 */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY "key"
#define RANGE 100
#define IN_FLIGHT 10

static redisContext *server;
static size_t value_size;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* CPU time of a process so far, in seconds; 0 if there is no such file. */
static double cpu(const char *schedstat)
{
    unsigned long long nanoseconds = 0;
    FILE *file = fopen(schedstat, "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu", &nanoseconds) != 1)
        nanoseconds = 0;
    fclose(file);
    return nanoseconds / 1e9;
}

/* Read a reply; return its number of items, or 1 for a status or an integer. */
static size_t take(int type)
{
    void *taken;
    size_t items = 0;
    if (redisGetReply(server, &taken) != REDIS_OK)
        fail(server->errstr);
    redisReply *reply = taken;
    if (reply->type == REDIS_REPLY_ERROR)
        fail(reply->str);
    if (reply->type != type && reply->type != REDIS_REPLY_NIL)
        fail("a reply of another type than expected");
    if (reply->type == REDIS_REPLY_ARRAY)
        for (size_t index = 0; index < reply->elements; index++)
            items += reply->element[index]->len == value_size;
    else if (reply->type == REDIS_REPLY_STRING)
        items = reply->len == value_size;
    else
        items = reply->type != REDIS_REPLY_NIL;
    freeReplyObject(reply);
    return items;
}

/* Send a command `count` times; read the replies after each `batch` commands. */
static size_t repeat(int type, int arguments, const char **command, size_t count, size_t batch)
{
    size_t sizes[3], done = 0;
    for (int index = 0; index < arguments; index++)
        sizes[index] = strlen(command[index]);
    for (size_t left = count; left > 0; left -= batch) {
        if (batch > left)
            batch = left;
        for (size_t index = 0; index < batch; index++)
            if (redisAppendCommandArgv(server, arguments, command, sizes) != REDIS_OK)
                fail(server->errstr);
        for (size_t index = 0; index < batch; index++)
            done += take(type);
    }
    return done;
}

/* Pop by LRANGE and LTRIM at the end of the list, with `in_flight` pairs of them in flight. */
static size_t pop_ranges(size_t count, unsigned long long batch, size_t in_flight)
{
    size_t asked = 0, waiting = 0, done = 0;
    for (;;) {
        for (; waiting < in_flight && asked < count; waiting++, asked += batch) {
            if (batch > count - asked)
                batch = count - asked;
            redisAppendCommand(server, "LRANGE " KEY " -%llu -1", batch);
            redisAppendCommand(server, "LTRIM " KEY " 0 -%llu", batch + 1);
        }
        if (waiting == 0)
            return done;
        done += take(REDIS_REPLY_ARRAY);
        take(REDIS_REPLY_STATUS);
        waiting--;
    }
}

/* Push by LPUSHes of `batch` items, one command at a time. */
static size_t push_many(size_t count, size_t batch, const char *value)
{
    const char **command = malloc((batch + 2) * sizeof *command);
    size_t *sizes = malloc((batch + 2) * sizeof *sizes), done = 0;
    if (command == NULL || sizes == NULL)
        fail("no memory");
    command[0] = "LPUSH", command[1] = KEY;
    for (size_t index = 0; index < batch + 2; index++) {
        if (index > 1)
            command[index] = value;
        sizes[index] = strlen(command[index]);
    }
    for (; done < count; done += batch) {
        if (batch > count - done)
            batch = count - done;
        if (redisAppendCommandArgv(server, batch + 2, command, sizes) != REDIS_OK)
            fail(server->errstr);
        take(REDIS_REPLY_INTEGER);
    }
    free(command);
    free(sizes);
    return done;
}

/* Pop by RPOPs of `batch` items, one command at a time. */
static size_t pop_many(size_t count, size_t batch)
{
    char text[24];
    const char *command[] = {"RPOP", KEY, text};
    size_t done = 0, items = 1;
    for (; done < count && items > 0; done += items) {
        snprintf(text, sizeof text, "%zu", batch < count - done ? batch : count - done);
        items = repeat(REDIS_REPLY_ARRAY, 3, command, 1, 1);
    }
    return done;
}

/* Send SETs one by one, for some seconds. */
static size_t repeat_seconds(double seconds)
{
    const char *command[] = {"SET", "foo", "bar"};
    size_t done = 0;
    for (double end = now() + seconds; now() < end;)
        done += repeat(REDIS_REPLY_STATUS, 3, command, 1, 1);
    return done;
}

static size_t run(const char *method, size_t count, size_t batch, const char *value)
{
    struct {
        const char *name, *command[3];
        int arguments, type;
    } methods[] = {
        {"lpush", {"LPUSH", KEY, value}, 3, REDIS_REPLY_INTEGER},
        {"rpop", {"RPOP", KEY}, 2, REDIS_REPLY_STRING},
        {"ping", {"PING"}, 1, REDIS_REPLY_STATUS},
    };
    if (strcmp(method, "lrange") == 0)
        return pop_ranges(count, batch, 1);
    if (strcmp(method, "lrange-pipeline") == 0)
        return pop_ranges(count, batch, IN_FLIGHT);
    if (strcmp(method, "lpush-many") == 0)
        return push_many(count, batch, value);
    if (strcmp(method, "rpop-many") == 0)
        return pop_many(count, batch);
    if (strcmp(method, "set-milliseconds") == 0)
        return repeat_seconds(count / 1e3);
    for (size_t index = 0; index < sizeof methods / sizeof *methods; index++) {
        const char *name = methods[index].name, *rest = method + strlen(name);
        if (strncmp(method, name, strlen(name)) != 0 || (*rest && strcmp(rest, "-pipeline") != 0))
            continue;
        return repeat(methods[index].type, methods[index].arguments, methods[index].command,
                      count, *rest ? batch : 1);
    }
    fail("METHOD is lpush, rpop, ping or lrange, or one of them with -pipeline; lpush-many, rpop-many "
         "or set-milliseconds");
    return 0;
}

/* Push and pop in turn, a batch at a time. */
static void run_in_turn(char *push, char *pop, size_t count, size_t batch, const char *value,
                        const char *pid)
{
    char schedstat[64];
    double start, used, pushing = 0, popping = 0, push_cpu = 0, pop_cpu = 0;
    snprintf(schedstat, sizeof schedstat, "/proc/%s/schedstat", pid);
    size_t pushed = 0, popped = 0, taken = strcmp(pop, "lrange") == 0 ? RANGE : batch;
    for (size_t left = count; left > 0; left -= batch) {
        if (batch > left)
            batch = left;
        used = cpu(schedstat);
        start = now();
        pushed += run(push, batch, batch, value);
        pushing += now() - start;
        push_cpu += cpu(schedstat) - used;
        used = cpu(schedstat);
        start = now();
        popped += run(pop, batch, taken, value);
        popping += now() - start;
        pop_cpu += cpu(schedstat) - used;
    }
    printf("%.9f %.9f %.9f %.9f %zu %zu\n", pushing, popping, push_cpu, pop_cpu, pushed, popped);
}

int main(int count, char **arguments)
{
    if (count != 6 && count != 7)
        fail("usage: hiredis_c SOCKET METHOD COUNT BATCH VALUE [PID]");
    size_t items = strtoull(arguments[3], NULL, 10), batch = strtoull(arguments[4], NULL, 10);
    if (items == 0 || batch == 0)
        fail("COUNT and BATCH are 1 or more");
    value_size = strlen(arguments[5]);
    if (*arguments[1] == '/')
        server = redisConnectUnix(arguments[1]);
    else
        server = redisConnect("127.0.0.1", atoi(arguments[1]));
    if (server == NULL || server->err)
        fail(server == NULL ? "no memory" : server->errstr);
    char *method = arguments[2], *second = strchr(method, '/');
    if (second != NULL) {
        *second = 0;
        run_in_turn(method, second + 1, items, batch, arguments[5], count > 6 ? arguments[6] : "");
    } else {
        double start = now();
        size_t done = run(method, items, batch, arguments[5]);
        printf("%.9f %zu\n", now() - start, done);
    }
    redisFree(server);
    return 0;
}
