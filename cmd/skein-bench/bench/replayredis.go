package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// aofName is how a server of any version finds an append-only file in its directory.
const aofName = "appendonly.aof"

// loadTimeout is how long a server may take to load a file.
const loadTimeout = 20 * time.Minute

var loadedLine = regexp.MustCompile(`DB loaded from append only file: ([0-9.]+) seconds`)

// writeAOF writes the append-only file of a server that has taken the index writes of the follows, one transaction each.
func (g *followGraph) writeAOF(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriterSize(file, 1<<20)
	buf := appendCommand(nil, "SELECT", "0")
	for i, e := range g.edges {
		buf = appendFollow(buf, userID(e.follower), userID(e.followee), strconv.FormatInt(int64(g.since(i)), 10))
		if _, err := w.Write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	return w.Flush()
}

// aofLoaded is what a server took to load a file: time, as it says, time of a processor, and resident memory in bytes.
type aofLoaded struct {
	took, used time.Duration
	memory     float64
}

// loadAOF starts a server that loads a file.
func (b *bench) loadAOF(ctx context.Context, file string, g *followGraph) (l aofLoaded, err error) {
	dir, err := os.MkdirTemp(b.dir, "redis-")
	if err != nil {
		return l, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return l, errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.Link(file, filepath.Join(dir, aofName)); err != nil {
		return l, errors.Join(err, os.RemoveAll(dir))
	}
	p, err := start(ctx, "redis-server", b.tools.redisServer, "--bind", "127.0.0.1", "--port", port, "--dir", dir,
		"--save", "", "--daemonize", "no", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
	if err != nil {
		return l, errors.Join(err, os.RemoveAll(dir))
	}
	s := &redisServer{process: p, dir: dir, addr: address{"127.0.0.1", port}}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr.String()})
	defer func() { err = errors.Join(err, s.close()) }()
	loaded := func(ctx context.Context) bool { return s.client.Ping(ctx).Err() == nil } // an error while it loads
	if err := p.untilWithin(ctx, loadTimeout, "loaded", loaded); err != nil {
		return l, err
	}
	if l.took, err = loadTook(p.out.String()); err != nil {
		return l, err
	}
	if l.used, err = s.cpu(ctx); err != nil {
		return l, err
	}
	info, err := s.client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return l, err
	}
	if l.memory, err = strconv.ParseFloat(info["Memory"]["used_memory_rss"], 64); err != nil {
		return l, fmt.Errorf("redis memory: %w", err)
	}
	return l, s.holds(ctx, g)
}

// loadTook reads from what a server prints how long it took to load its file, at least a millisecond.
func loadTook(said string) (time.Duration, error) {
	found := loadedLine.FindStringSubmatch(said)
	if found == nil {
		return 0, fmt.Errorf("redis did not say how long it took to load its file:\n%s", said)
	}
	took, err := time.ParseDuration(found[1] + "s")
	return max(took, time.Millisecond), err
}
