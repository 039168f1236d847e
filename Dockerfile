# schedd, its adapter and the emulated server in one image: docker build -t schedd .
FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/schedd && python -m venv /opt/build
# What changes seldom first, so that a change of the program does not fetch it all again.
COPY requirements.lock requirements-compile.lock requirements-build.lock ./
RUN /opt/schedd/bin/pip install --no-cache-dir --require-hashes -r requirements.lock -r requirements-compile.lock \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock
COPY pyproject.toml LICENSE README.md ./
COPY schedd schedd
COPY server_adapter server_adapter
COPY sql sql
COPY release/wheel_hook.py release/
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/schedd/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM python:3.12-slim
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/schedd --shell /usr/sbin/nologin schedd \
    && install -d -o schedd -g schedd -m 0700 /var/lib/schedd /var/cache/schedd
COPY --from=build /opt/schedd /opt/schedd
ENV PATH=/opt/schedd/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    MALLOC_ARENA_MAX=2 \
    STATE_DIRECTORY=/var/lib/schedd \
    CACHE_DIRECTORY=/var/cache/schedd
USER 10001:10001
# The database, where it is a file; the compiled kernels.
VOLUME ["/var/lib/schedd", "/var/cache/schedd"]
EXPOSE 8080
# Whether it lives: a daemon whose server or database is away shall not be stopped for it. /readyz tells more.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz')"]
ENTRYPOINT ["schedd"]
CMD ["serve"]
