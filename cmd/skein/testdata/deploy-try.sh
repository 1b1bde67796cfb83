#!/usr/bin/env bash
# Runs docs/deploy/compose.yaml with Docker on new volumes, as docs/deploy/README.md says, and tries the service, also while one process and one
# NATS server are down. Needs Docker with Compose 2.24 or later, and the image `skein`, which `task deploy:try` builds before. Nothing here
# touches the volumes: they must get the right owner from the images.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

work=$(mktemp -d /tmp/skein-deploy-XXXXXX)
# Free ports, so that a service on 7411 does not matter.
cat >"$work/ports.yaml" <<'END'
services:
  skein-1: {ports: !override ["127.0.0.1::7411"]}
  skein-2: {ports: !override ["127.0.0.1::7411"]}
END
export COMPOSE_PROJECT_NAME=skein-try-$$
compose() { docker compose --file docs/deploy/compose.yaml --file "$work/ports.yaml" --env-file docs/deploy/example.env "$@"; }
cleanup() {
  compose down --volumes --timeout 60 >"$work/down.log" 2>&1 || cat "$work/down.log"
  docker volume rm "$COMPOSE_PROJECT_NAME-foreign" >/dev/null 2>&1 || true
  if [[ -n ${built:-} ]]; then docker image rm "$built" >/dev/null; fi
  rm -rf "$work"
}
trap cleanup EXIT
fail() {
  echo "deploy:try: $*" >&2
  compose logs --tail 20 >&2
  exit 1
}
client() { bin/image/skein "$@"; }
export SKEIN_TIMEOUT=60s

# Without a registry, the server of go.mod stands in for the official image, which has the same binary and entry point.
nats=$(sed -n 's/^ARG NATS=//p' docs/deploy/nats/Dockerfile)
if ! docker image inspect "$nats" >/dev/null 2>&1 && ! docker pull --quiet "$nats" 2>/dev/null; then
  echo "== $nats cannot be pulled: it is built from the server in go.mod"
  mkdir "$work/nats"
  CGO_ENABLED=0 go build -o "$work/nats/nats-server" github.com/nats-io/nats-server/v2
  printf 'FROM scratch\nCOPY nats-server /nats-server\nENTRYPOINT ["/nats-server"]\n' >"$work/nats/Dockerfile"
  docker build --quiet --tag "$nats" "$work/nats"
  built=$nats
fi

echo "== up"
compose up --detach --wait --build || fail "not healthy"
compose ps --format 'table {{.Service}}\t{{.Status}}'
one=http://$(compose port skein-1 7411) two=http://$(compose port skein-2 7411)
await_ready() {
  for _ in $(seq 300); do
    if client healthcheck --server "$1" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  fail "$1 is not ready"
}
await_ready "$one"
await_ready "$two"
at=$(echo '{"userFollowed":{"userId":"ann","targetUserId":"bob"}}' | client publish --visible --server "$one")
client query check ann bob --at-least "$at" --server "$two"

echo "== the log is archived, and healthy"
compose exec skein-1 /usr/local/bin/skein healthcheck --healthy
compose exec skein-2 /usr/local/bin/skein healthcheck --healthy
archived=
for _ in $(seq 600); do # --archive-every is a minute
  archived=$(client status --json --server "$one" | grep -o '"archive":{[^}]*}')
  if [[ $archived == *'"lastSequence":"'[1-9]* ]]; then break; fi
  sleep 0.2
done
[[ $archived == *'"lastSequence":"'[1-9]* ]] || fail "nothing is archived: $archived"
echo "$archived"

echo "== one of two processes down"
compose stop skein-1 2>/dev/null
client query check ann bob --at-least "$at" --server "$two"
compose up --detach --wait skein-1 2>/dev/null
one=http://$(compose port skein-1 7411) # another free port
await_ready "$one"

echo "== one of three NATS servers down"
compose kill nats-b 2>/dev/null
at=$(echo '{"userFollowed":{"userId":"ann","targetUserId":"cid"}}' | client publish --visible --server "$two")
client query check ann bob cid --at-least "$at" --server "$one"
compose start nats-b 2>/dev/null

echo "== it may write to its volumes and nowhere else"
if compose exec -T skein-1 /usr/local/bin/skein token new --name x --role read --tokens /tokens 2>"$work/refused"; then
  fail "it could write to /"
fi
cat "$work/refused"
compose exec -T skein-1 /usr/local/bin/skein token new --name x --role read --tokens /data/tokens >/dev/null

echo "== an archive that belongs to root is refused at the start"
if docker run --rm --volume "$COMPOSE_PROJECT_NAME-foreign:/elsewhere" skein serve --archive /elsewhere >"$work/refused" 2>&1; then
  fail "it was started"
fi
tail -n 1 "$work/refused"
grep -q -- '--archive: .*must be able to write' "$work/refused" || fail "another error"
echo "deploy:try: passed"
