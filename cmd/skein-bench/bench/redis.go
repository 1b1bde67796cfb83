package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// durability is how a Redis server writes its append-only file.
type durability string

const (
	noFile   durability = "no"
	everysec durability = "everysec"
	always   durability = "always"
)

// redisServer is a Redis server with nothing in it but what the bench puts there.
type redisServer struct {
	*process
	dir    string
	addr   address
	client *redis.Client
}

// startRedis starts a fresh server on a free port of the loopback, with its files in a folder of its own below dir
// and without any configuration file, and waits until it answers.
func startRedis(ctx context.Context, tool, dir string, d durability) (*redisServer, error) {
	dir, err := os.MkdirTemp(dir, "redis-")
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--daemonize", "no"}
	if d == noFile {
		args = append(args, "--appendonly", "no")
	} else {
		args = append(args, "--appendonly", "yes", "--appendfsync", string(d))
	}
	p, err := start(ctx, filepath.Base(tool), tool, args...)
	if err != nil {
		return nil, err
	}
	s := &redisServer{process: p, dir: dir, addr: address{"127.0.0.1", port}}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr.String()})
	err = p.until(ctx, "ready", func(ctx context.Context) bool { return s.client.Ping(ctx).Err() == nil })
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close stops the server and removes its files.
func (s *redisServer) close() error {
	return errors.Join(s.client.Close(), s.stop(), os.RemoveAll(s.dir))
}

// load writes a graph as the index writes of its follows.
func (s *redisServer) load(ctx context.Context, g *followGraph, id func(uint32) string) error {
	const batch = 1000
	pipe := s.client.Pipeline()
	for i, e := range g.edges {
		a, b, since := id(e.follower), id(e.followee), float64(g.since(i))
		pipe.ZAdd(ctx, followingKey(a), redis.Z{Score: since, Member: b})
		pipe.ZAdd(ctx, followersKey(b), redis.Z{Score: since, Member: a})
		pipe.HIncrBy(ctx, countsKey(a), "following", 1)
		pipe.HIncrBy(ctx, countsKey(b), "followers", 1)
		if i%batch != batch-1 && i != len(g.edges)-1 {
			continue
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("loading redis: %w", err)
		}
	}
	return nil
}

// memory returns the bytes that the server uses beyond those of an empty one.
func (s *redisServer) memory(ctx context.Context) (float64, error) {
	info, err := s.client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	used, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
	if err != nil {
		return 0, fmt.Errorf("redis memory: %w", err)
	}
	empty, err := strconv.ParseFloat(info["Memory"]["used_memory_startup"], 64)
	if err != nil {
		return 0, fmt.Errorf("redis memory: %w", err)
	}
	return used - empty, nil
}
