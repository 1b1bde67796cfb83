package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Durability says when a Redis server writes its append-only file (AOF), the log of all writes, to
// disk.
type Durability string

const (
	// NoFile means that there is no append-only file.
	NoFile Durability = "no"
	// Everysec means that the file is written to disk every second.
	Everysec Durability = "everysec"
	// Always means that the file is written to disk before the server answers.
	Always Durability = "always"
)

// Redis is a Redis server that the bench has started, and that has only the data that the bench
// writes.
type Redis struct {
	*Process
	// dir has the files of the server.
	dir    string
	Addr   Address
	Client *redis.Client
}

// StartRedis starts an empty server on a free port of the loopback, and waits until it answers. The
// server has its files in a new directory below parent, and no configuration file. tool is the path
// of redis-server.
func StartRedis(ctx context.Context, tool, parent string, d Durability) (*Redis, error) {
	dir, err := os.MkdirTemp(parent, "redis-")
	if err != nil {
		return nil, err
	}

	args := []string{"--appendonly", "yes", "--appendfsync", string(d)}
	if d == NoFile {
		args = []string{"--appendonly", "no"}
	}
	s, err := startRedisServer(ctx, tool, dir, args...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	err = s.waitUntil(ctx, "ready", s.isAnswering)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// startRedisServer starts a server with its files in dir, and does not wait until it answers.
func startRedisServer(ctx context.Context, tool, dir string, args ...string) (*Redis, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	// Without --save "" the server would write snapshots in a second process while it is measured.
	args = append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--daemonize", "no"}, args...)
	p, err := start(ctx, filepath.Base(tool), tool, args...)
	if err != nil {
		return nil, err
	}
	addr := Address{"127.0.0.1", port}
	return &Redis{Process: p, dir: dir, Addr: addr, Client: redis.NewClient(&redis.Options{Addr: addr.String()})}, nil
}

// isAnswering reports whether the server answers a ping. It answers with an error while it loads a
// file.
func (s *Redis) isAnswering(ctx context.Context) bool { return s.Client.Ping(ctx).Err() == nil }

// Close stops the server and removes its files.
func (s *Redis) Close() error {
	return errors.Join(s.Client.Close(), s.Stop(), os.RemoveAll(s.dir))
}

// Memory returns how many bytes the server uses for its data: what it has allocated, without what
// it had allocated at its start. The resident memory would also have the gaps that the allocator
// leaves.
func (s *Redis) Memory(ctx context.Context) (float64, error) {
	info, err := s.Client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	used, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
	if err != nil {
		return 0, fmt.Errorf("redis memory: %w", err)
	}
	usedAtStart, err := strconv.ParseFloat(info["Memory"]["used_memory_startup"], 64)
	if err != nil {
		return 0, fmt.Errorf("redis memory: %w", err)
	}
	return used - usedAtStart, nil
}

// CPU returns the processor time that the server has used since its start.
func (s *Redis) CPU(ctx context.Context) (time.Duration, error) {
	info, err := s.Client.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return 0, fmt.Errorf("redis cpu: %w", err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// FollowingKey returns the key of the sorted set of the users whom a user follows. The bench keeps
// the follow graph in Redis as a product would: each user has two sorted sets and a hash of counts.
// The score of a member is the time of the follow in microseconds, which is exact in a
// floating-point number of 64 bits.
func FollowingKey(user string) string { return "f:" + user }

// FollowersKey returns the key of the sorted set of the followers of a user.
func FollowersKey(user string) string { return "r:" + user }

// CountsKey returns the key of the hash with the numbers of followers and followees of a user.
func CountsKey(user string) string { return "c:" + user }

// AppendFollow appends the commands that write one follow at the time since, in one transaction,
// encoded for Redis.
func AppendFollow(dst []byte, follower, followee, since string) []byte {
	dst = AppendCommand(dst, "MULTI")
	dst = AppendCommand(dst, "ZADD", FollowingKey(follower), since, followee)
	dst = AppendCommand(dst, "ZADD", FollowersKey(followee), since, follower)
	dst = AppendCommand(dst, "HINCRBY", CountsKey(follower), "following", "1")
	dst = AppendCommand(dst, "HINCRBY", CountsKey(followee), "followers", "1")
	return AppendCommand(dst, "EXEC")
}
