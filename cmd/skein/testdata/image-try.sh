#!/usr/bin/env bash
# Runs the image `skein` with podman: a read-only root, no network but the loopback, a volume, the health check, the stop signal. Needs root,
# podman, and runc, which bears hosts with both versions of cgroups.
set -euo pipefail

engine=(podman --runtime "$(command -v runc)")
volume=skein-try-$$
name=skein-try-$$
trap '"${engine[@]}" rm --force --time 5 "$name" >/dev/null 2>&1; "${engine[@]}" volume rm "$volume" >/dev/null 2>&1 || true' EXIT

fail() { echo "image:try: $*" >&2; exit 1; }

start() {
  # The timer of health checks needs systemd; they are asked for below.
  "${engine[@]}" run --detach --name "$name" --read-only --network none --health-interval disable --ulimit nofile=4096:4096 \
    --ulimit nproc=4096:4096 --volume "$volume:/data" skein "$@" >/dev/null
  for _ in $(seq 60); do
    "${engine[@]}" healthcheck run "$name" >/dev/null 2>&1 && return
    read -rt 0.5 < <(tail -f /dev/null) || true
  done
  "${engine[@]}" logs "$name"
  fail "not healthy"
}

skein() { "${engine[@]}" exec --interactive "$name" /usr/local/bin/skein "$@"; }

start serve
echo '{"userFollowed":{"userId":"ann","targetUserId":"bob"}}' | skein publish --visible
[[ $(skein query followers bob) == *ann* ]] || fail "ann does not follow bob"
"${engine[@]}" exec "$name" /bin/sh -c true >/dev/null 2>&1 && fail "there is a shell"
[[ $("${engine[@]}" top "$name" user | tail -n 1) == 65532 ]] || fail "runs as another user"
"${engine[@]}" stop --time 30 "$name" >/dev/null
code=$("${engine[@]}" inspect "$name" --format '{{.State.ExitCode}}')
[[ $code == 0 ]] || fail "stopped with $code"
"${engine[@]}" rm "$name" >/dev/null
start serve
[[ $(skein query followers bob) == *ann* ]] || fail "the volume has lost the follow"
echo "image:try: passed"
