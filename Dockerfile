# The command line in a container; docs/get-started.md says how to use it.
#
#   docker build -t fastresp .
#   docker run --rm --network host -v "$PWD:/data" fastresp load users.csv "HSET user:{id} {**}"
FROM python:3.13-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*
COPY . /source
# The wheels of this checkout and of its dependencies.
RUN pip wheel --no-cache-dir --wheel-dir /wheels '/source[files]'

FROM python:3.13-slim-bookworm
# hadolint ignore=DL3013
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'fastresp[files]' \
 && useradd --uid 1000 --create-home fastresp
USER 1000
WORKDIR /data
ENTRYPOINT ["fastresp"]
CMD ["--help"]
