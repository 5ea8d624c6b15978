# docker build --tag parley .                                    (with extras: --build-arg EXTRAS=mcp,otel)
# docker run --rm parley -p --model offline "say Hello"
FROM python:3.13-slim AS build
ARG EXTRAS="pdf,search"
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY packages packages
# Bytecode is compiled here: the user of the image cannot write it, and a start without it takes twice as long.
RUN python -m venv /opt/parley \
    && /opt/parley/bin/pip install --no-cache-dir --compile ".${EXTRAS:+[$EXTRAS]}" ./packages/server ./packages/kit \
    && /opt/parley/bin/parley --print --model offline "say Hello"

FROM python:3.13-slim
# Agents use git; rg comes with Parley. The home directory is writable for `docker run --user`, as /tmp is.
# A new volume at /run/parley belongs to the user, so that a gateway can write its token there.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 parley \
    && install --directory --owner=parley --group=parley /work /run/parley \
    && install --directory --owner=parley --group=parley --mode=1777 /home/parley /home/parley/.claude
COPY --from=build /opt/parley /opt/parley
ENV HOME=/home/parley \
    PATH="/opt/parley/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /work
ENTRYPOINT ["parley"]
