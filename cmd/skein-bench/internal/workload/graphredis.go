package workload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
)

// LoadRedis writes the graph into Redis: for each follow two members of sorted sets and two counts.
// The function id gives users their ids.
func LoadRedis(ctx context.Context, s *programs.Redis, g *Graph, id func(uint32) string) error {
	const batch = 1000
	pipe := s.Client.Pipeline()
	for i, e := range g.Edges {
		follower := id(e.Follower)
		followee := id(e.Followee)
		since := float64(g.FollowTime(i))
		pipe.ZAdd(ctx, programs.FollowingKey(follower), redis.Z{Score: since, Member: followee})
		pipe.ZAdd(ctx, programs.FollowersKey(followee), redis.Z{Score: since, Member: follower})
		pipe.HIncrBy(ctx, programs.CountsKey(follower), "following", 1)
		pipe.HIncrBy(ctx, programs.CountsKey(followee), "followers", 1)

		if i%batch != batch-1 && i != len(g.Edges)-1 {
			continue
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("loading redis: %w", err)
		}
	}
	return nil
}

// CheckRedisGraph returns an error unless the server has all followers of the most followed user,
// who is user 0.
func CheckRedisGraph(ctx context.Context, s *programs.Redis, g *Graph) error {
	size, err := s.Client.ZCard(ctx, programs.FollowersKey(UserID(0))).Result()
	if err != nil {
		return err
	}
	count, err := s.Client.HGet(ctx, programs.CountsKey(UserID(0)), "followers").Int()
	if err != nil {
		return err
	}
	if int(size) != g.Followers[0] || count != g.Followers[0] {
		return fmt.Errorf("%d followers, counted %d, instead of %d", size, count, g.Followers[0])
	}
	return nil
}

// WriteAOF writes the append-only file that a Redis server would have written for the follows of
// the graph, each in a transaction of its own.
func WriteAOF(g *Graph, path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()

	w := bufio.NewWriterSize(file, 1<<20)
	buf := programs.AppendCommand(nil, "SELECT", "0")
	for i, e := range g.Edges {
		buf = programs.AppendFollow(buf, UserID(e.Follower), UserID(e.Followee), strconv.FormatInt(int64(g.FollowTime(i)), 10))
		if _, err := w.Write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	return w.Flush()
}
