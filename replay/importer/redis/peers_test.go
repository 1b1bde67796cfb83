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
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for client.Ping(t.Context()).Err() != nil {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("redis-server does not answer")
		}
	}
	return client
}

// Sorted sets of every encoding and size are read completely, with their scores, whatever the size
// of a page, by a user who may only read, and no faster than the limit.
func TestEveryEncodingIsReadWhole(t *testing.T) {
	client := startRedis(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]bool{}
	for _, entries := range []string{"0", "64", "100000"} { // beyond so many members, a sorted set is a skiplist
		must(client.ConfigSet(ctx, "zset-max-listpack-entries", entries).Err())
		for _, size := range []int{1, 64, 65, 3000} {
			key := fmt.Sprintf("e%s-%d", entries, size)
			for n := range size {
				score := 1_600_000_000 + float64(n)/1024
				must(client.ZAdd(ctx, "followers:"+key, goredis.Z{Score: score, Member: fmt.Sprint("u", n)}).Err())
				f := fact{
					kind: events.UserFollowed, user: fmt.Sprint("u", n), peer: key,
					at: events.Micros(1_600_000_000_000_000 + (n*1_000_000+512)/1024),
				}
				want[f.String()] = true
			}
			encoding := client.ObjectEncoding(ctx, "followers:"+key).Val()
			if listpack := entries == "100000" || entries == "64" && size <= 64; listpack != (encoding == "listpack") {
				t.Errorf("%s is a %s", key, encoding)
			}
		}
	}
	must(client.Do(ctx, "ACL", "SETUSER", "reader", "on", ">secret", "~*", "+info", "+dbsize", "+scan", "+type", "+zscan", "+sscan",
		"+hscan", "+lrange").Err())
	for _, size := range []int{1, 7, 1000} {
		o := Options{URL: "redis://reader:secret@" + client.Options().Addr, Mapping: mustParse(t, plainMapping), PageSize: size}
		must(o.setDefaultsAndCheck())
		s, err := newServer(&o)
		must(err)
		got := map[string]bool{}
		counts := newKeyCounts(o.Mapping)
		rd := &keyReader{
			keyspace: s, mapping: o.Mapping, start: events.Micros(time.Now().UnixMicro()), counts: &counts,
			fact:   func(f *fact) error { got[f.String()] = true; return nil },
			reject: func(r *reject) error { t.Errorf("rejected: %v", r); return nil },
		}
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			cursor, err = rd.readStep(ctx, cursor)
			must(err)
		}
		must(s.close())
		if len(got) != len(want) {
			t.Errorf("pages of %d: %d facts, want %d", size, len(got), len(want))
		}
		for f := range want {
			if !got[f] {
				t.Errorf("pages of %d: missing: %s", size, f)
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
		t.Fatalf("%+v, %v", report, err)
	}
	// 600 commands and more, of which a second's worth comes at once.
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("600 commands took %v at 400 a second", took)
	}
}
