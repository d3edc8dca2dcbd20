/* A server that reads commands of RESP, counts them and keeps nothing; bench/sinks.py runs it.
 *
 *     sink [FIRST-LAST=PORT ...]
 *
 * Standard input is the listening socket. With ranges of slots, the sink claims to be a node of a
 * cluster whose nodes listen on these ports of the loopback. It does not check the slots of keys.
 *
 * The sink reads the lengths of commands and arguments, and skips their contents. It counts each
 * command and replies +OK, in one write for all commands of a read. The commands that a load sends
 * before it starts get a server's usual replies, and are not counted. INFO has the counts so far. At
 * the end, the sink prints the counts, and a line for each connection that sent commands.
 *
 * SIGTERM ends the sink. It exits with 1 if a stream is not RESP, or ends within a command.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Maximum bytes of one read. Redis reads 16 KiB; with larger reads, the sink needs less time. */
#define READ_BYTES (256 << 10)
/* Limits of Redis: bytes of an argument, and number of arguments. */
#define MAX_BULK_BYTES (512L << 20)
#define MAX_ARGUMENTS (1L << 20)
#define MAX_CONNECTIONS 1024
#define MAX_RANGES 1024
/* The name of the last counted command is kept, so that commands of this name need no look-up. */
#define NAME_BYTES 32
/* A signal that arrives just before poll() is handled within this time. */
#define WAIT_MS 100

struct range {
    int first, last, port;
};

struct connection {
    char *in, *out;              /* unhandled input; unsent replies */
    size_t in_size, in_room;     /* a zero follows the last byte of `in` */
    size_t out_at, out_size, out_room;
    unsigned long long commands, bytes;
    int queuing;                 /* after MULTI */
    size_t name_size;            /* of the last counted command */
    char name[NAME_BYTES];
};

/* An argument in the buffer of a connection. */
struct word {
    const char *at;
    long size;
};

static struct range ranges[MAX_RANGES];
static int range_count;
static unsigned long long commands, bytes;
static volatile sig_atomic_t ended;

static void fail(const char *what)
{
    fprintf(stderr, "sink: %s\n", what);
    exit(1);
}

static void *grown(void *memory, size_t size)
{
    memory = realloc(memory, size);
    if (memory == NULL)
        fail("no memory");
    return memory;
}

static void end(int number)
{
    (void)number;
    ended = 1;
}

/* Add to the replies of a connection. */
static void reply(struct connection *to, const char *text, size_t size)
{
    if (to->out_size + size > to->out_room) {
        to->out_room = 2 * to->out_room + size + READ_BYTES;
        to->out = grown(to->out, to->out_room);
    }
    memcpy(to->out + to->out_size, text, size);
    to->out_size += size;
}

static void reply_text(struct connection *to, const char *text)
{
    reply(to, text, strlen(text));
}

static void reply_bulk(struct connection *to, const char *text, size_t size)
{
    char header[32];
    reply(to, header, (size_t)snprintf(header, sizeof header, "$%zu\r\n", size));
    reply(to, text, size);
    reply_text(to, "\r\n");
}

/* Write the counts as fields of INFO; return their size. */
static size_t counts(char *text, size_t room)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (size_t)snprintf(text, room, "sink_commands:%llu\r\nsink_bytes:%llu\r\nsink_cpu:%.9f\r\n",
                            commands, bytes, (double)used.tv_sec + (double)used.tv_nsec / 1e9);
}

static void reply_info(struct connection *to)
{
    char text[512];
    size_t size = (size_t)snprintf(text, sizeof text,
                                   "redis_version:7.0.0\r\nrole:master\r\nloading:0\r\n"
                                   "cluster_enabled:%d\r\n", range_count > 0);
    size += counts(text + size, sizeof text - size);
    reply_bulk(to, text, size);
}

static void reply_slots(struct connection *to)
{
    char text[160];
    reply(to, text, (size_t)snprintf(text, sizeof text, "*%d\r\n", range_count));
    for (const struct range *each = ranges; each < ranges + range_count; each++)
        reply(to, text,
              (size_t)snprintf(text, sizeof text,
                               "*3\r\n:%d\r\n:%d\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n%040d\r\n",
                               each->first, each->last, each->port, each->port));
}

static int is(const struct word *word, const char *name)
{
    return (size_t)word->size == strlen(name) && strncasecmp(word->at, name, strlen(name)) == 0;
}

/* Answer a command that a client sends before its load; return 0 for the commands of the load. */
static int answer(struct connection *to, const struct word *words, long count)
{
    const struct word *name = words;
    if (is(name, "DISCARD")) {
        to->queuing = 0;
        reply_text(to, "+OK\r\n");
    } else if (to->queuing) {
        reply_text(to, "+QUEUED\r\n");
    } else if (is(name, "MULTI")) {
        to->queuing = 1;
        reply_text(to, "+OK\r\n");
    } else if (is(name, "PING")) {
        reply_text(to, "+PONG\r\n");
    } else if (is(name, "ECHO") && count == 2) {
        reply_bulk(to, words[1].at, (size_t)words[1].size);
    } else if (is(name, "INFO")) {
        reply_info(to);
    } else if (is(name, "CLUSTER") && count == 2 && is(words + 1, "SLOTS") && range_count) {
        reply_slots(to);
    } else if (is(name, "CONFIG") || is(name, "COMMAND")) {
        reply_text(to, "*0\r\n");    /* the client falls back to its defaults */
    } else if (is(name, "CLIENT") || is(name, "SELECT") || is(name, "AUTH")) {
        reply_text(to, "+OK\r\n");
    } else if (is(name, "HELLO") || is(name, "CLUSTER") || is(name, "EXEC") || is(name, "ACL")) {
        reply_text(to, "-ERR unknown command: the sink has no such answer\r\n");
    } else {
        return 0;
    }
    return 1;
}

/* Read "*3\r\n" or "$12\r\n"; return the end of the header, or NULL if it is incomplete. */
static const char *header(const char *at, const char *behind, char kind, long most, long *number)
{
    const char *digits = at + 1;
    long found = 0;
    if (at < behind && *at != kind)
        fail(kind == '*' ? "a command does not begin with *" : "an argument does not begin with $");
    if (behind - at < 4)
        return NULL;
    /* At the end of the input, the loop stops at the zero. */
    for (at = digits; *at >= '0' && *at <= '9'; at++)
        if ((found = 10 * found + (*at - '0')) > most)
            fail("a length is too large");
    if (behind - at < 2 && (at == behind || *at == '\r'))
        return NULL;
    if (at == digits || at[0] != '\r' || at[1] != '\n')
        fail("a length is not a number that ends with CRLF");
    *number = found;
    return at + 2;
}

/* Count or answer a command; return the end of the command, or NULL if it is incomplete. */
static const char *command(struct connection *from, const char *start, const char *behind)
{
    struct word words[2] = {{NULL, 0}, {NULL, 0}};
    long count, size;
    const char *at = header(start, behind, '*', MAX_ARGUMENTS, &count);
    if (at == NULL)
        return NULL;
    if (count == 0)
        fail("a command has no arguments");
    for (long index = 0; index < count; index++) {
        at = header(at, behind, '$', MAX_BULK_BYTES, &size);
        if (at == NULL || behind - at < size + 2)
            return NULL;
        if (at[size] != '\r' || at[size + 1] != '\n')
            fail("an argument does not end with CRLF");
        if (index < 2) {
            words[index].at = at;
            words[index].size = size;
        }
        at += size + 2;
    }
    if (from->queuing || (size_t)words->size != from->name_size ||
        memcmp(words->at, from->name, from->name_size) != 0) {
        if (answer(from, words, count))
            return at;
        from->name_size = 0;
        if (words->size <= NAME_BYTES) {
            from->name_size = (size_t)words->size;
            memcpy(from->name, words->at, from->name_size);
        }
    }
    from->commands++;
    from->bytes += (unsigned long long)(at - start);
    reply(from, "+OK\r\n", 5);
    return at;
}

/* Handle all complete commands of the input. */
static void handle(struct connection *from)
{
    const char *at = from->in, *behind = from->in + from->in_size, *next;
    unsigned long long before = from->commands, bytes_before = from->bytes;
    while (at < behind && (next = command(from, at, behind)) != NULL)
        at = next;
    from->in_size = (size_t)(behind - at);
    memmove(from->in, at, from->in_size);
    commands += from->commands - before;
    bytes += from->bytes - bytes_before;
}

/* Read once; return 0 at the end of the stream. */
static int receive(struct connection *from, int socket)
{
    if (from->in_room < from->in_size + READ_BYTES) {
        from->in_room = 2 * from->in_size + READ_BYTES;
        from->in = grown(from->in, from->in_room + 1);
    }
    ssize_t got = read(socket, from->in + from->in_size, READ_BYTES);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (got <= 0) {
        if (from->in_size)
            fail("a connection ended within a command");
        return 0;
    }
    from->in_size += (size_t)got;
    from->in[from->in_size] = 0;
    handle(from);
    return 1;
}

/* Send as many replies as the socket accepts; return 0 if the connection is lost. */
static int answer_now(struct connection *to, int socket)
{
    while (to->out_at < to->out_size) {
        ssize_t sent = write(socket, to->out + to->out_at, to->out_size - to->out_at);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        to->out_at += (size_t)sent;
    }
    to->out_at = to->out_size = 0;
    return 1;
}

static void release(struct connection *of, int socket, int number)
{
    if (of->commands)
        printf("connection %d: %llu commands, %llu bytes\n", number, of->commands, of->bytes);
    close(socket);
    free(of->in);
    free(of->out);
}

static void read_ranges(int count, char **arguments)
{
    if (count > MAX_RANGES)
        fail("too many ranges of slots");
    for (; range_count < count; range_count++) {
        struct range *each = ranges + range_count;
        if (sscanf(arguments[range_count], "%d-%d=%d", &each->first, &each->last, &each->port) != 3)
            fail("usage: sink [FIRST-LAST=PORT ...], with the listening socket as standard input");
    }
}

int main(int count, char **arguments)
{
    static struct connection connections[MAX_CONNECTIONS];
    static struct pollfd polled[MAX_CONNECTIONS + 1];
    static int numbers[MAX_CONNECTIONS];
    int open = 0, accepted = 0, yes = 1;
    struct sigaction ending = {.sa_handler = end};
    read_ranges(count - 1, arguments + 1);
    sigaction(SIGTERM, &ending, NULL);
    sigaction(SIGINT, &ending, NULL);
    signal(SIGPIPE, SIG_IGN);
    polled[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    while (!ended) {
        if (poll(polled, (nfds_t)open + 1, WAIT_MS) < 0) {
            if (errno != EINTR)
                fail("poll() failed");
            continue;
        }
        for (int index = open - 1; index >= 0; index--) {
            struct pollfd *its = polled + 1 + index;
            struct connection *each = connections + index;
            if (its->revents == 0)
                continue;
            /* Unsent replies are sent before more is read. */
            int alive = (each->out_size || receive(each, its->fd)) && answer_now(each, its->fd);
            its->events = each->out_size ? POLLOUT : POLLIN;
            if (!alive) {
                release(each, its->fd, numbers[index]);
                open--;
                *each = connections[open];
                *its = polled[1 + open];
                numbers[index] = numbers[open];
            }
        }
        if (polled[0].revents && open < MAX_CONNECTIONS) {
            int made = accept(STDIN_FILENO, NULL, NULL);
            if (made < 0)
                fail("standard input is not a listening socket");
            fcntl(made, F_SETFL, O_NONBLOCK);
            setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            connections[open] = (struct connection){0};
            numbers[open] = ++accepted;
            polled[++open] = (struct pollfd){.fd = made, .events = POLLIN};
        }
    }
    char text[256];
    for (int index = 0; index < open; index++)
        release(connections + index, polled[1 + index].fd, numbers[index]);
    printf("%.*s", (int)counts(text, sizeof text), text);
    return 0;
}
