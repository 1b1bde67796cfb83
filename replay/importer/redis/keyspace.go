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

// keyspace is what an import needs to read of a Redis server.
type keyspace interface {
	// runID identifies the present run of the server; empty means that the server does not say. A
	// cursor of a scan is valid only within one run.
	runID(ctx context.Context) (string, error)
	// size returns the number of keys in the database.
	size(ctx context.Context) (int64, error)
	// scan returns some keys and the next cursor, which is 0 after the last keys.
	scan(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error)
	// types returns the type of each key, or "none" if the key does not exist any more.
	types(ctx context.Context, keys []string) ([]string, error)
	// readPages reads one page of each key.
	readPages(ctx context.Context, requests []pageRequest) ([]page, error)
}

// pageRequest asks for a page of a key. The cursor of the first page is 0.
type pageRequest struct {
	key       string
	structure structure
	cursor    uint64
}

// page is a page of a key. Depending on the structure, elements has members and scores alternately,
// fields and values alternately, members, or elements. next is the cursor of the next page; 0 on
// the last page.
type page struct {
	elements []string
	next     uint64
	// err is the server's error for this key alone, for example because its type has changed.
	err error
}

// keysPerRoundTrip is how many keys are read in one round trip. With pages of 1000 elements, their
// replies stay far below maxReplyBytes.
const keysPerRoundTrip = 50

// server reads a Redis server, no faster than the limit. It repeats commands that the server does
// not answer.
type server struct {
	client   *goredis.Client
	limit    *rate.Limiter
	pageSize int64
	patience time.Duration
	// onRetry is called with the error of an attempt before the next attempt, and with nil after an
	// attempt that succeeds.
	onRetry func(error)
	// hasAnswered is set once the server has answered. Before that, nothing is retried, because the
	// address is probably wrong.
	hasAnswered bool
	// limitWait is how long commands have waited for the limit.
	limitWait time.Duration
}

// newServer returns a server for the URL of the options. It does not connect yet.
func newServer(o *Options) (*server, error) {
	opt, err := goredis.ParseURL(o.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}

	// Use only commands that old servers have and that a user with few rights may call. The library
	// must not retry, because callRetrying does.
	opt.Protocol = 2
	opt.DisableIdentity = true
	opt.MaxRetries = -1
	opt.DialerRetries = 1
	opt.Dialer = dialLimited(opt)

	limit := rate.NewLimiter(rate.Inf, 0)
	if o.Commands > 0 {
		limit = rate.NewLimiter(rate.Limit(o.Commands), max(int(o.Commands), keysPerRoundTrip))
	}
	return &server{
		client:   goredis.NewClient(opt),
		limit:    limit,
		pageSize: int64(o.PageSize),
		patience: o.Patience,
		onRetry:  func(error) {},
	}, nil
}

// ErrURL means that a text is not the address of a Redis server.
var ErrURL = errors.New("--redis must be redis://host:port/database, with user:password@ or rediss:// where needed")

func (s *server) close() error {
	return s.client.Close()
}

// name returns the address of the server without credentials.
func (s *server) name() string {
	o := s.client.Options()
	return fmt.Sprintf("%s/%d", o.Addr, o.DB)
}

// temporaryErrors are prefixes of errors that the server returns for a while only.
var temporaryErrors = []string{"LOADING", "TRYAGAIN", "BUSY", "MASTERDOWN", "CLUSTERDOWN"}

// isRefusal reports whether the server has answered with an error that it would return again.
func isRefusal(err error) bool {
	var serverErr goredis.Error
	if !errors.As(err, &serverErr) {
		return false
	}
	for _, prefix := range temporaryErrors {
		if strings.HasPrefix(serverErr.Error(), prefix) {
			return false
		}
	}
	return true
}

// callRetrying calls do, which sends this many commands. It repeats the call until the server
// answers, for as long as Patience allows. It waits for the limit before the first attempt.
func (s *server) callRetrying(ctx context.Context, commands int, do func() error) error {
	waitStart := time.Now()
	if err := s.limit.WaitN(ctx, commands); err != nil {
		return err
	}
	s.limitWait += time.Since(waitStart)

	deadline := time.Now().Add(s.patience)
	for pause := retry.FirstPause; ; pause = min(2*pause, retry.LongestPause) {
		err := do()
		var serverErr goredis.Error
		s.hasAnswered = s.hasAnswered || err == nil || errors.As(err, &serverErr)
		switch {
		case err == nil:
			s.onRetry(nil)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isRefusal(err), isTooLarge(err):
			return fmt.Errorf("redis: %w", err)
		case !s.hasAnswered:
			return fmt.Errorf("redis: %s does not answer: %w\nIs Redis running there? --redis or SKEIN_REDIS says where it is",
				s.name(), err)
		case time.Now().Add(pause).After(deadline):
			return fmt.Errorf("redis: gave up after trying for %v: %w", s.patience, err)
		}

		s.onRetry(err)
		// The pause is random, so that many importers do not come back at the same moment.
		if wait.For(ctx, pause/2+rand.N(pause/2)) != nil {
			return context.Cause(ctx)
		}
	}
}

// runID implements [keyspace].
func (s *server) runID(ctx context.Context) (id string, err error) {
	err = s.callRetrying(ctx, 1, func() error {
		// The method InfoMap of the library panics if the answer has no sections.
		info, err := s.client.Info(ctx, "server").Result()
		id = infoField(info, "run_id")
		return err
	})
	return id, err
}

// infoField returns the value of a field in the answer to INFO; empty if there is no such field.
func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value
		}
	}
	return ""
}

// size implements [keyspace].
func (s *server) size(ctx context.Context) (n int64, err error) {
	err = s.callRetrying(ctx, 1, func() (err error) {
		n, err = s.client.DBSize(ctx).Result()
		return err
	})
	return n, err
}

// scan implements [keyspace].
func (s *server) scan(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error) {
	err = s.callRetrying(ctx, 1, func() (err error) {
		keys, next, err = s.client.Scan(ctx, cursor, match, s.pageSize).Result()
		return err
	})
	return keys, next, err
}

// types implements [keyspace].
func (s *server) types(ctx context.Context, keys []string) ([]string, error) {
	types := make([]string, len(keys))
	for from := 0; from < len(keys); from += keysPerRoundTrip {
		batch := keys[from:min(from+keysPerRoundTrip, len(keys))]
		err := s.callRetrying(ctx, len(batch), func() error {
			pipe := s.client.Pipeline()
			answers := make([]*goredis.StatusCmd, len(batch))
			for i, key := range batch {
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

// readPages implements [keyspace].
func (s *server) readPages(ctx context.Context, requests []pageRequest) ([]page, error) {
	pages := make([]page, len(requests))
	err := s.callRetrying(ctx, len(requests), func() error {
		pipe := s.client.Pipeline()
		answers := make([]goredis.Cmder, len(requests))
		for i, p := range requests {
			switch p.structure {
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

		// Exec returns the first error of any command. An error of one key must not stop the
		// others.
		if _, err := pipe.Exec(ctx); err != nil && !isRefusal(err) {
			return err
		}
		for i, a := range answers {
			pages[i] = page{} // an earlier attempt may have set it
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
					pages[i].next = requests[i].cursor + uint64(n)
				}
			}
		}
		return nil
	})
	return pages, err
}

// quote returns a key or element for people: unchanged if it is printable, quoted with escapes
// otherwise.
func quote(s string) string {
	q := strconv.Quote(s)
	if len(q) == len(s)+2 {
		return s
	}
	return q
}
