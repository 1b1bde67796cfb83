//go:build peers

package redis

import (
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/skein-feed/skein/events"
)

// startRedis starts a redis-server that ends with the test. It is behind a build tag because it
// needs that program, and go test ./... must not need it: go test -tags peers
// ./replay/importer/redis
func startRedis(t *testing.T) *goredis.Client {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()

	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", fmt.Sprint(addr.Port), "--dir", t.TempDir(), "--save", "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(&goredis.Options{Addr: addr.String(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() {
		_ = client.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // "signal: killed"
	})

	// Wait until the server answers.
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := client.Ping(t.Context()).Err()
		if err == nil {
			return client
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("got %v from redis-server after a minute, expected an answer", err)
		}
	}
}

// Sorted sets of every encoding and size are read completely, with their scores, whatever the size
// of a page, by a user who may only read, and no faster than the limit.
func TestEveryEncodingIsReadWhole(t *testing.T) {
	client := startRedis(t)
	ctx := t.Context()
	mustSucceed := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	// A sorted set with more than so many members is a skiplist; others are listpacks.
	want := map[string]bool{}
	for _, maxListpack := range []int{0, 64, 100_000} {
		mustSucceed(client.ConfigSet(ctx, "zset-max-listpack-entries", fmt.Sprint(maxListpack)).Err())
		for _, size := range []int{1, 64, 65, 3000} {
			key := fmt.Sprintf("e%d-%d", maxListpack, size)
			for n := range size {
				score := 1_600_000_000 + float64(n)/1024
				mustSucceed(client.ZAdd(ctx, "followers:"+key, goredis.Z{Score: score, Member: fmt.Sprint("u", n)}).Err())
				f := fact{
					kind: events.UserFollowed, user: fmt.Sprint("u", n), peer: key,
					at: events.Micros(1_600_000_000_000_000 + (n*1_000_000+512)/1024),
				}
				want[f.String()] = true
			}

			encoding := client.ObjectEncoding(ctx, "followers:"+key).Val()
			wantListpack := size <= maxListpack
			if (encoding == "listpack") != wantListpack {
				t.Errorf("%s: got the encoding %s, want a listpack: %v", key, encoding, wantListpack)
			}
		}
	}

	// Read the keys as a user who may only read.
	mustSucceed(client.Do(ctx, "ACL", "SETUSER", "reader", "on", ">secret", "~*",
		"+info", "+dbsize", "+scan", "+type", "+zscan", "+sscan", "+hscan", "+lrange").Err())
	for _, pageSize := range []int{1, 7, 1000} {
		o := Options{URL: "redis://reader:secret@" + client.Options().Addr, Mapping: mustParse(t, plainMapping), PageSize: pageSize}
		mustSucceed(o.setDefaultsAndCheck())
		s, err := newServer(&o)
		mustSucceed(err)

		got := map[string]bool{}
		counts := newKeyCounts(o.Mapping)
		reader := &keyReader{
			keyspace: s, mapping: o.Mapping, start: events.Micros(time.Now().UnixMicro()), counts: &counts,
			fact: func(f *fact) error {
				got[f.String()] = true
				return nil
			},
			reject: func(r *reject) error {
				t.Errorf("pages of %d: got the reject %v, want none", pageSize, r)
				return nil
			},
		}
		cursor, err := reader.readStep(ctx, 0)
		mustSucceed(err)
		for cursor != 0 {
			cursor, err = reader.readStep(ctx, cursor)
			mustSucceed(err)
		}
		mustSucceed(s.close())

		if len(got) != len(want) {
			t.Errorf("pages of %d: got %d facts, want %d", pageSize, len(got), len(want))
		}
		for f := range want {
			if !got[f] {
				t.Errorf("pages of %d: the fact %s is missing", pageSize, f)
				break
			}
		}
	}
}

// The limit of commands per second is kept.
func TestCommandLimitIsKept(t *testing.T) {
	client := startRedis(t)
	for n := range 300 {
		if err := client.SAdd(t.Context(), fmt.Sprintf("likes:i%d", n), "ann").Err(); err != nil {
			t.Fatal(err)
		}
	}

	o := Options{URL: "redis://" + client.Options().Addr, Mapping: mustParse(t, plainMapping), Commands: 400}
	began := time.Now()
	report, err := DryRun(t.Context(), o)
	if err != nil || report.Found != 300 {
		t.Fatalf("got %+v, %v, want 300 facts", report, err)
	}

	// There are more than 600 commands. The first 400 are not delayed.
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("600 commands took %v at 400 per second, want at least 400ms", took)
	}
}
