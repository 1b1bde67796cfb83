package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// AOFName is the name under which a server of any version looks for an append-only file in its
// directory.
const AOFName = "appendonly.aof"

// loadTimeout is how long a server may take to load an append-only file.
const loadTimeout = 20 * time.Minute

// loadTimeLine matches the line in which a server prints how long it took to load its file.
var loadTimeLine = regexp.MustCompile(`DB loaded from append only file: ([0-9.]+) seconds`)

// AOFLoadTimes has the time that a server took to load its append-only file: Reported is what the
// server prints, Processor the processor time that it has used.
type AOFLoadTimes struct{ Reported, Processor time.Duration }

// LoadAOF starts a server that loads an append-only file, and returns how long that took. The
// function check returns an error unless the server then has the right data.
func LoadAOF(
	ctx context.Context, b *measure.Bench, file string, check func(context.Context, *Redis) error,
) (times AOFLoadTimes, err error) {
	dir, err := os.MkdirTemp(b.Dir, "redis-")
	if err != nil {
		return times, err
	}
	if err := os.Link(file, filepath.Join(dir, AOFName)); err != nil {
		return times, errors.Join(err, os.RemoveAll(dir))
	}
	s, err := startRedisServer(ctx, b.Tools.RedisServer, dir, "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
	if err != nil {
		return times, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.waitUntilWithin(ctx, loadTimeout, "loaded", s.isAnswering); err != nil {
		return times, err
	}

	times.Reported, err = parseLoadTime(s.out.String())
	if err != nil {
		return times, err
	}
	times.Processor, err = s.CPU(ctx)
	if err != nil {
		return times, err
	}
	return times, check(ctx, s)
}

// parseLoadTime returns the time that a server prints for loading its file. It returns at least a
// millisecond, the precision of that time, because the caller divides by it.
func parseLoadTime(output string) (time.Duration, error) {
	found := loadTimeLine.FindStringSubmatch(output)
	if found == nil {
		return 0, fmt.Errorf("redis did not say how long it took to load its file:\n%s", output)
	}
	took, err := time.ParseDuration(found[1] + "s")
	return max(took, time.Millisecond), err
}
