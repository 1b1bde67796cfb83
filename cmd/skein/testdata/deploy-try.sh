#!/usr/bin/env bash
# Runs what docs/deploy/compose.yaml describes without Docker, as root on Linux: each container is a network namespace and a directory
# that has the binary and nothing else, mounted read-only, entered as user 65532 without a shell. NATS configuration, host names,
# environment and commands are those of the file. Then it tries the service, also while one process and one NATS server are down.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
deploy=$PWD/docs/deploy
work=$(mktemp -d /tmp/skein-deploy-XXXXXX)
hosts=(nats-a nats-b nats-c skein-1 skein-2)
declare -A pids
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  for h in "${hosts[@]}"; do
    ip netns del "skt-$h" 2>/dev/null || true
    rm -rf "/etc/netns/skt-$h"
    umount "$work/$h/data" "$work/$h/archive" "$work/$h" 2>/dev/null || true
  done
  ip link del sktry 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

CGO_ENABLED=0 go build -o "$work/skein" ./cmd/skein
CGO_ENABLED=0 go build -o "$work/nats-server" github.com/nats-io/nats-server/v2

ip link add sktry type bridge
ip addr add 10.213.7.1/24 dev sktry
ip link set sktry up
for i in "${!hosts[@]}"; do printf '10.213.7.%d %s\n' $((i + 11)) "${hosts[i]}"; done >"$work/hosts"
for i in "${!hosts[@]}"; do
  h=${hosts[i]}
  ip netns add "skt-$h"
  ip link add "skv$i" type veth peer name eth0 netns "skt-$h"
  ip link set "skv$i" master sktry up
  ip -n "skt-$h" addr add "10.213.7.$((i + 11))/24" dev eth0
  ip -n "skt-$h" link set eth0 up
  ip -n "skt-$h" link set lo up
  # The image: a binary, the names of the network, and mount points.
  root=$work/$h
  mkdir -p "$root"/{etc/nats,usr/local/bin,tmp,data,archive,dev} "$work/vol-$h"
  cp "$work/hosts" "$root/etc/hosts"
  cp "$deploy/nats/nats.conf" "$root/etc/nats/"
  case $h in nats-*) cp "$work/nats-server" "$root/usr/local/bin/" ;; *) cp "$work/skein" "$root/usr/local/bin/" ;; esac
done
mkdir -p "$work/vol-archive"
for h in "${hosts[@]}"; do
  chown 65532:65532 "$work/vol-$h"
  mount --bind "$work/$h" "$work/$h"
  mount --bind "$work/vol-$h" "$work/$h/data"
  case $h in skein-*) mount --bind "$work/vol-archive" "$work/$h/archive" ;; esac
  mount -o remount,bind,ro "$work/$h"
done
chown 65532:65532 "$work/vol-archive"

# in_container HOST COMMAND… runs a command as the container of that name does.
in_container() {
  local h=$1
  shift
  exec ip netns exec "skt-$h" chroot --userspec=65532:65532 "$work/$h" "$@"
}
start_nats() {
  (SKEIN_PASSWORD=s3cretA PUBLISHER_PASSWORD=s3cretB in_container "$1" /usr/local/bin/nats-server --name="$1" --config=/etc/nats/nats.conf \
    >>"$work/$1.log" 2>&1) &
  pids[$1]=$!
}
mapfile -t command < <(awk '/^  command:$/ {on = 1; next} on && /^    - / {print $2} on && /^[a-z]/ {exit}' "$deploy/compose.yaml")
nats=$(sed -n 's/^    SKEIN_NATS: //p' "$deploy/compose.yaml" | sed 's/\${SKEIN_PASSWORD[^}]*}/s3cretA/')
start_skein() {
  (env -i SKEIN_DATA=/data SKEIN_NATS="$nats" SKEIN_NATS_INBOX=_INBOX_skein PATH="$PATH" \
    bash -c "$(declare -f in_container); work=$work; in_container $1 /usr/local/bin/skein ${command[*]}" >>"$work/$1.log" 2>&1) &
  pids[$1]=$!
}
client() { "$work/skein" "$@"; }
export SKEIN_TIMEOUT=60s
one=http://10.213.7.14:7411 two=http://10.213.7.15:7411
await_ready() {
  for _ in $(seq 300); do
    if client healthcheck --server "$1" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  tail -n 5 "$work"/*.log
  echo "$1 is not ready"
  return 1
}

echo "command: skein ${command[*]}"
for h in nats-a nats-b nats-c; do start_nats $h; done
for h in skein-1 skein-2; do start_skein $h; done
began=$SECONDS
await_ready $one
await_ready $two
echo "both are ready after $((SECONDS - began)) s"
(in_container skein-1 /usr/local/bin/skein healthcheck --alive)
at=$(echo '{"userFollowed":{"userId":"ann","targetUserId":"bob"}}' | client publish --visible --server $one)
client query check ann bob --at-least "$at" --server $two
echo "== one of two processes down"
kill "${pids[skein-1]}"
wait "${pids[skein-1]}" || true
client query check ann bob --at-least "$at" --server $two 2>/dev/null
start_skein skein-1
await_ready $one
echo "== one of three NATS servers down"
kill -9 "${pids[nats-b]}"
wait "${pids[nats-b]}" || true
at=$(echo '{"userFollowed":{"userId":"ann","targetUserId":"cid"}}' | client publish --visible --server $two)
client query check ann bob cid --at-least "$at" --server $one
start_nats nats-b
client status --server $one >"$work/status"
head -n 4 "$work/status"
echo "== it may write to its volumes and nowhere else"
if (in_container skein-1 /usr/local/bin/skein token new --name x --role read --tokens /tokens) 2>"$work/refused"; then
  echo "it could write to /"
  exit 1
fi
cat "$work/refused"
(in_container skein-1 /usr/local/bin/skein token new --name x --role read --tokens /data/tokens) >/dev/null
echo "deploy: all went well"
