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

// redisService answers three methods of the graph service from Redis: what a team writes that needs the same answers
// over the same protocol, and nothing besides. It checks no limits and keeps no metrics.
type redisService struct {
	skeinv1connect.UnimplementedGraphServiceHandler

	// commands sends single commands, pipelines several at once.
	commands  redis.Cmdable
	pipelines *redis.Client
}

// CheckFollows asks for one score each.
func (s *redisService) CheckFollows(
	ctx context.Context, req *connect.Request[skeinv1.CheckFollowsRequest],
) (*connect.Response[skeinv1.CheckFollowsResponse], error) {
	pairs := req.Msg.GetPairs()
	cmds := make([]*redis.FloatCmd, len(pairs))
	ask := func(c redis.Cmdable) {
		for i, p := range pairs {
			cmds[i] = c.ZScore(ctx, FollowingKey(p.GetUserId()), p.GetTargetUserId())
		}
	}
	if len(pairs) == 1 {
		ask(s.commands)
	} else {
		pipe := s.pipelines.Pipeline()
		ask(pipe)
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
	}
	res := &skeinv1.CheckFollowsResponse{Kinds: make([]skeinv1.FollowKind, len(pairs))}
	for i, cmd := range cmds {
		score, err := cmd.Result()
		switch {
		case errors.Is(err, redis.Nil):
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

// FilterFollowed asks for all scores with one command.
func (s *redisService) FilterFollowed(
	ctx context.Context, req *connect.Request[skeinv1.FilterFollowedRequest],
) (*connect.Response[skeinv1.FilterFollowedResponse], error) {
	scores, err := s.commands.ZMScore(ctx, FollowingKey(req.Msg.GetViewerId()), req.Msg.GetUserIds()...).Result()
	if err != nil {
		return nil, err
	}
	res := &skeinv1.FilterFollowedResponse{}
	for i, score := range scores {
		if score != 0 {
			res.Indexes = append(res.Indexes, uint32(i))
		}
	}
	return connect.NewResponse(res), nil
}

// ListFollowers asks for the first page and for the length of the list, in one pipeline.
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

func timestamp(score float64) *timestamppb.Timestamp {
	return timestamppb.New(time.UnixMicro(int64(score)))
}

// ServeRedis serves the graph of a Redis server over HTTP on a free port of the loopback, which it writes to a file
// when it is ready. With batch, commands of concurrent calls go out together (go-redis calls it auto-pipelining);
// without, each call takes a connection of the pool. It returns when the context ends.
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

// writePort writes the port of an address to a file that is there as a whole or not at all.
func writePort(file string, addr net.Addr) error {
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return err
	}
	return atomicfile.Write(file, []byte(port+"\n"))
}

// StartRedisService starts the service in front of a Redis server: the mode is pooled or batched.
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
