package programs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/events/atomicfile"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// redisService answers three methods of the graph service from Redis. It is what a team would write
// that has its graph in Redis and needs the same answers over the same protocol. It checks no
// limits and has no metrics.
type redisService struct {
	skeinv1connect.UnimplementedGraphServiceHandler

	// commands sends single commands. It may send those of concurrent calls together.
	commands redis.Cmdable
	// pipelines sends the commands of one call together.
	pipelines *redis.Client
}

// CheckFollows reads the score of each pair. The score is the time of the follow.
func (s *redisService) CheckFollows(
	ctx context.Context, req *connect.Request[skeinv1.CheckFollowsRequest],
) (*connect.Response[skeinv1.CheckFollowsResponse], error) {
	pairs := req.Msg.GetPairs()
	scores := make([]*redis.FloatCmd, len(pairs))
	readScores := func(c redis.Cmdable) {
		for i, p := range pairs {
			scores[i] = c.ZScore(ctx, FollowingKey(p.GetUserId()), p.GetTargetUserId())
		}
	}
	if len(pairs) == 1 {
		readScores(s.commands)
	} else {
		pipe := s.pipelines.Pipeline()
		readScores(pipe)
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
	}

	res := &skeinv1.CheckFollowsResponse{Kinds: make([]skeinv1.FollowKind, len(pairs))}
	for i, cmd := range scores {
		score, err := cmd.Result()
		switch {
		case errors.Is(err, redis.Nil): // the set has no such member
			res.Kinds[i] = skeinv1.FollowKind_FOLLOW_KIND_NONE
		case err != nil:
			return nil, err
		default:
			res.Kinds[i] = skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
		}

		if req.Msg.GetIncludeTimes() {
			since := &skeinv1.FollowTime{}
			if err == nil {
				since.Time = timestamp(score)
			}
			res.FollowTimes = append(res.FollowTimes, since)
		}
	}
	return connect.NewResponse(res), nil
}

// FilterFollowed reads all scores with one command.
func (s *redisService) FilterFollowed(
	ctx context.Context, req *connect.Request[skeinv1.FilterFollowedRequest],
) (*connect.Response[skeinv1.FilterFollowedResponse], error) {
	scores, err := s.commands.ZMScore(ctx, FollowingKey(req.Msg.GetViewerId()), req.Msg.GetUserIds()...).Result()
	if err != nil {
		return nil, err
	}

	res := &skeinv1.FilterFollowedResponse{}
	for i, score := range scores {
		// The score of a missing member is 0, and no follow has the time 0.
		if score != 0 {
			res.Indexes = append(res.Indexes, uint32(i))
		}
	}
	return connect.NewResponse(res), nil
}

// ListFollowers reads the first page and the length of the list, in one pipeline.
func (s *redisService) ListFollowers(
	ctx context.Context, req *connect.Request[skeinv1.ListFollowersRequest],
) (*connect.Response[skeinv1.ListFollowersResponse], error) {
	size := int64(req.Msg.GetPageSize())
	key := FollowersKey(req.Msg.GetUserId())
	pipe := s.pipelines.Pipeline()
	page := pipe.ZRevRangeWithScores(ctx, key, 0, size-1)
	total := pipe.ZCard(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}

	res := &skeinv1.ListFollowersResponse{TotalSize: uint32(total.Val())}
	res.Entries = make([]*skeinv1.FollowEntry, len(page.Val()))
	for i, z := range page.Val() {
		id, ok := z.Member.(string)
		if !ok {
			return nil, fmt.Errorf("member %v is not a string", z.Member)
		}
		res.Entries[i] = &skeinv1.FollowEntry{
			UserId: id, Kind: skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT, FollowTime: timestamp(z.Score),
		}
	}
	if total.Val() > size {
		res.NextPageToken = strconv.FormatInt(size, 10)
	}
	return connect.NewResponse(res), nil
}

// timestamp returns the time of a follow, which is the score of a member in microseconds.
func timestamp(score float64) *timestamppb.Timestamp {
	return timestamppb.New(time.UnixMicro(int64(score)))
}

// ServeRedis serves the graph in a Redis server over HTTP until the context ends. It listens on a
// free port of the loopback, and writes the port to portFile when it listens. With batch, the
// commands of concurrent calls are sent together, which go-redis calls auto-pipelining. Without
// batch, each call takes a connection from a pool.
func ServeRedis(ctx context.Context, redisAddr, portFile string, batch bool) (err error) {
	client := redis.NewClient(&redis.Options{Addr: redisAddr, PoolSize: 64, MinIdleConns: 64})
	defer func() { err = errors.Join(err, client.Close()) }()
	s := &redisService{commands: client, pipelines: client}
	if batch {
		auto, err := client.AutoPipeline()
		if err != nil {
			return err
		}
		s.commands = auto
	}

	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis at %s: %w", redisAddr, err)
	}

	mux := http.NewServeMux()
	mux.Handle(skeinv1connect.NewGraphServiceHandler(s))
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()

	if err := writePort(portFile, listener.Addr()); err != nil {
		listener.Close()
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// writePort writes the port of an address to a file. A program that waits for the file never reads
// a part of the port.
func writePort(file string, addr net.Addr) error {
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return err
	}
	return atomicfile.Write(file, []byte(port+"\n"))
}

// StartRedisService starts this program as the service in front of a Redis server, and returns its
// process and address. The mode is "pooled" or "batched" (see [ServeRedis]).
func StartRedisService(ctx context.Context, b *measure.Bench, r *Redis, mode string) (*Process, Address, error) {
	portFile := filepath.Join(b.Dir, "service-"+mode+".port")
	args := []string{"redis-service", "--redis", r.Addr.String(), "--port-file", portFile}
	if mode == "batched" {
		args = append(args, "--batch")
	}
	p, err := start(ctx, "the service in front of Redis", b.Opts.Self, args...)
	if err != nil {
		return nil, Address{}, err
	}
	addr, err := p.waitUntilListening(ctx, portFile)
	return p, addr, err
}
