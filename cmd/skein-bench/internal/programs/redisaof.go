package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// AOFName is how a server of any version finds an append-only file in its directory.
const AOFName = "appendonly.aof"

// loadTimeout is how long a server may take to load a file.
const loadTimeout = 20 * time.Minute

var loadTimeLine = regexp.MustCompile(`DB loaded from append only file: ([0-9.]+) seconds`)

// AOFLoadTimes is what a server took to load a file: time, as it says, and time of a processor.
type AOFLoadTimes struct{ Reported, Processor time.Duration }

// LoadAOF starts a server that loads a file, and fails unless it holds then what it should.
func LoadAOF(
	ctx context.Context, b *measure.Bench, file string, holds func(context.Context, *Redis) error,
) (l AOFLoadTimes, err error) {
	dir, err := os.MkdirTemp(b.Dir, "redis-")
	if err != nil {
		return l, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return l, errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.Link(file, filepath.Join(dir, AOFName)); err != nil {
		return l, errors.Join(err, os.RemoveAll(dir))
	}
	p, err := start(ctx, "redis-server", b.Tools.RedisServer, "--bind", "127.0.0.1", "--port", port, "--dir", dir,
		"--save", "", "--daemonize", "no", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
	if err != nil {
		return l, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Redis{Process: p, dir: dir, Addr: Address{"127.0.0.1", port}}
	s.Client = redis.NewClient(&redis.Options{Addr: s.Addr.String()})
	defer func() { err = errors.Join(err, s.Close()) }()
	loaded := func(ctx context.Context) bool { return s.Client.Ping(ctx).Err() == nil } // an error while it loads
	if err := p.waitUntilWithin(ctx, loadTimeout, "loaded", loaded); err != nil {
		return l, err
	}
	if l.Reported, err = parseLoadTime(p.out.String()); err != nil {
		return l, err
	}
	if l.Processor, err = s.CPU(ctx); err != nil {
		return l, err
	}
	return l, holds(ctx, s)
}

// parseLoadTime reads from what a server prints how long it took to load its file, at least a millisecond.
func parseLoadTime(said string) (time.Duration, error) {
	found := loadTimeLine.FindStringSubmatch(said)
	if found == nil {
		return 0, fmt.Errorf("redis did not say how long it took to load its file:\n%s", said)
	}
	took, err := time.ParseDuration(found[1] + "s")
	return max(took, time.Millisecond), err
}
