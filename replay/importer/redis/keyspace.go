package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/replay/internal/retry"
)

// keyspace has the reads of a Redis server that an import needs.
type keyspace interface {
	// runID identifies this run of the server; empty means that the server does not say. A cursor of a scan is valid within one run only.
	runID(ctx context.Context) (string, error)
	// size returns the number of keys in the database.
	size(ctx context.Context) (int64, error)
	// scan returns some keys and the next cursor, or 0 after the last keys.
	scan(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error)
	// types returns the type of each key, or "none" for a key that is gone.
	types(ctx context.Context, keys []string) ([]string, error)
	// pages reads a page of each key.
	pages(ctx context.Context, of []pageOf) ([]page, error)
}

// pageOf names a page of a key; cursor 0 is the first one.
type pageOf struct {
	key    string
	is     structure
	cursor uint64
}

// page is a page of a key. It has members and scores alternately, fields and values alternately, members, or elements. The last page has
// a next of 0.
type page struct {
	elements []string
	next     uint64
	// err is the server's error for this key alone, for example because its type has changed.
	err error
}

// Sizes of the reads.
const (
	// pipelined is the number of keys that are read in one round trip.
	pipelined = 50
)

// server reads a Redis server no faster than the limit, and retries commands that it does not answer.
type server struct {
	client   *goredis.Client
	limit    *rate.Limiter
	pageSize int64
	patience time.Duration
	// waiting is called with the error of an attempt before the next one, and with nil once an attempt succeeds after that.
	waiting func(error)
	// reached reports whether the server has ever answered. Before that nothing is retried, because the address is probably wrong.
	reached bool
	// held is how long commands have waited for the limit.
	held time.Duration
}

// newServer connects with a URL, redis://user:password@host:port/database, or rediss:// for TLS.
func newServer(o *Options) (*server, error) {
	opt, err := goredis.ParseURL(o.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	// Only commands that old servers know, and that a user with few rights may call. try does the retries.
	opt.Protocol, opt.DisableIdentity, opt.MaxRetries, opt.DialerRetries = 2, true, -1, 1
	opt.Dialer = dialLimited(opt)
	limit := rate.NewLimiter(rate.Inf, 0)
	if o.Commands > 0 {
		limit = rate.NewLimiter(rate.Limit(o.Commands), max(int(o.Commands), pipelined))
	}
	return &server{
		client: goredis.NewClient(opt), limit: limit, pageSize: int64(o.PageSize), patience: o.Patience, waiting: func(error) {},
	}, nil
}

// ErrURL is returned for a text that is no address of a Redis server.
var ErrURL = errors.New("--redis must be redis://host:port/database, with user:password@ or rediss:// where needed")

func (s *server) close() error { return s.client.Close() }

// name returns the address without credentials.
func (s *server) name() string {
	o := s.client.Options()
	return fmt.Sprintf("%s/%d", o.Addr, o.DB)
}

// passing are the prefixes of temporary errors of the server.
var passing = []string{"LOADING", "TRYAGAIN", "BUSY", "MASTERDOWN", "CLUSTERDOWN"}

// refused reports whether the server has answered with an error that a retry would meet again.
func refused(err error) bool {
	var said goredis.Error
	if !errors.As(err, &said) {
		return false
	}
	for _, p := range passing {
		if strings.HasPrefix(said.Error(), p) {
			return false
		}
	}
	return true
}

// try calls do, which sends this many commands, until the server answers or Patience is over. It waits for the limit before each attempt.
func (s *server) try(ctx context.Context, commands int, do func() error) error {
	asked := time.Now()
	if err := s.limit.WaitN(ctx, commands); err != nil {
		return err
	}
	s.held += time.Since(asked)
	deadline := time.Now().Add(s.patience)
	for pause := retry.FirstPause; ; pause = min(2*pause, retry.LongestPause) {
		err := do()
		var said goredis.Error
		s.reached = s.reached || err == nil || errors.As(err, &said)
		switch {
		case err == nil:
			s.waiting(nil)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case refused(err), isTooLarge(err):
			return fmt.Errorf("redis: %w", err)
		case !s.reached:
			return fmt.Errorf("redis: %s does not answer: %w\nIs Redis running there? --redis or SKEIN_REDIS says where it is",
				s.name(), err)
		case time.Now().Add(pause).After(deadline):
			return fmt.Errorf("redis: gave up after trying for %v: %w", s.patience, err)
		}
		s.waiting(err)
		if wait.For(ctx, pause/2+rand.N(pause/2)) != nil {
			return context.Cause(ctx)
		}
	}
}

func (s *server) runID(ctx context.Context) (id string, err error) {
	err = s.try(ctx, 1, func() error {
		// The client library's InfoMap panics at an answer without sections.
		info, err := s.client.Info(ctx, "server").Result()
		id = infoField(info, "run_id")
		return err
	})
	return id, err
}

// infoField returns a field of the answer to INFO; empty means that it has no such field.
func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value
		}
	}
	return ""
}

func (s *server) size(ctx context.Context) (n int64, err error) {
	err = s.try(ctx, 1, func() (err error) {
		n, err = s.client.DBSize(ctx).Result()
		return err
	})
	return n, err
}

func (s *server) scan(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error) {
	err = s.try(ctx, 1, func() (err error) {
		keys, next, err = s.client.Scan(ctx, cursor, match, s.pageSize).Result()
		return err
	})
	return keys, next, err
}

func (s *server) types(ctx context.Context, keys []string) ([]string, error) {
	types := make([]string, len(keys))
	for from := 0; from < len(keys); from += pipelined {
		some := keys[from:min(from+pipelined, len(keys))]
		err := s.try(ctx, len(some), func() error {
			pipe := s.client.Pipeline()
			answers := make([]*goredis.StatusCmd, len(some))
			for i, key := range some {
				answers[i] = pipe.Type(ctx, key)
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
			for i, a := range answers {
				types[from+i] = a.Val()
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return types, nil
}

func (s *server) pages(ctx context.Context, of []pageOf) ([]page, error) {
	pages := make([]page, len(of))
	err := s.try(ctx, len(of), func() error {
		pipe := s.client.Pipeline()
		answers := make([]goredis.Cmder, len(of))
		for i, p := range of {
			switch p.is {
			case sortedSet:
				answers[i] = pipe.ZScan(ctx, p.key, p.cursor, "", s.pageSize)
			case set:
				answers[i] = pipe.SScan(ctx, p.key, p.cursor, "", s.pageSize)
			case hash:
				answers[i] = pipe.HScan(ctx, p.key, p.cursor, "", s.pageSize)
			case list:
				answers[i] = pipe.LRange(ctx, p.key, int64(p.cursor), int64(p.cursor)+s.pageSize-1)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil && !refused(err) {
			return err
		}
		for i, a := range answers {
			pages[i] = page{}
			if err := a.Err(); err != nil {
				if !goredis.HasErrorPrefix(err, "WRONGTYPE") {
					return err
				}
				pages[i].err = err
				continue
			}
			switch a := a.(type) {
			case *goredis.ScanCmd:
				pages[i].elements, pages[i].next = a.Val()
			case *goredis.StringSliceCmd:
				pages[i].elements = a.Val()
				if n := int64(len(pages[i].elements)); n == s.pageSize {
					pages[i].next = of[i].cursor + uint64(n)
				}
			}
		}
		return nil
	})
	return pages, err
}

// quote returns a key or element for people: unchanged if it is printable, otherwise with escapes.
func quote(s string) string {
	q := strconv.Quote(s)
	if len(q) == len(s)+2 {
		return s
	}
	return q
}
