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

// Durability is how a Redis server writes its append-only file.
type Durability string

// When the file is written to the disk: there is none, every second, before each answer.
const (
	NoFile   Durability = "no"
	Everysec Durability = "everysec"
	Always   Durability = "always"
)

// Redis is a Redis server with nothing in it but what the bench puts there.
type Redis struct {
	*Process
	dir    string
	Addr   Address
	Client *redis.Client
}

// StartRedis starts a fresh server on a free port of the loopback, with its files in a folder of its own below dir
// and without any configuration file, and waits until it answers.
func StartRedis(ctx context.Context, tool, dir string, d Durability) (*Redis, error) {
	dir, err := os.MkdirTemp(dir, "redis-")
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--daemonize", "no"}
	if d == NoFile {
		args = append(args, "--appendonly", "no")
	} else {
		args = append(args, "--appendonly", "yes", "--appendfsync", string(d))
	}
	p, err := start(ctx, filepath.Base(tool), tool, args...)
	if err != nil {
		return nil, err
	}
	s := &Redis{Process: p, dir: dir, Addr: Address{"127.0.0.1", port}}
	s.Client = redis.NewClient(&redis.Options{Addr: s.Addr.String()})
	err = p.waitUntil(ctx, "ready", func(ctx context.Context) bool { return s.Client.Ping(ctx).Err() == nil })
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close stops the server and removes its files.
func (s *Redis) Close() error {
	return errors.Join(s.Client.Close(), s.Stop(), os.RemoveAll(s.dir))
}

// Memory returns the bytes that the server uses beyond those of an empty one.
func (s *Redis) Memory(ctx context.Context) (float64, error) {
	info, err := s.Client.InfoMap(ctx, "memory").Result()
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

// CPU returns the processor time that the server has used.
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

// FollowingKey is the sorted set of those that a user follows. The graph is in Redis as a product would keep it: two sorted sets and
// a hash of counts for each user. Scores are times in microseconds, which a double holds exactly.
func FollowingKey(user string) string { return "f:" + user }

// FollowersKey is the sorted set of the followers of a user.
func FollowersKey(user string) string { return "r:" + user }

// CountsKey is the hash of the counts of a user.
func CountsKey(user string) string { return "c:" + user }

// AppendFollow appends the index writes of one follow as one transaction.
func AppendFollow(dst []byte, follower, followee, since string) []byte {
	dst = AppendCommand(dst, "MULTI")
	dst = AppendCommand(dst, "ZADD", FollowingKey(follower), since, followee)
	dst = AppendCommand(dst, "ZADD", FollowersKey(followee), since, follower)
	dst = AppendCommand(dst, "HINCRBY", CountsKey(follower), "following", "1")
	dst = AppendCommand(dst, "HINCRBY", CountsKey(followee), "followers", "1")
	return AppendCommand(dst, "EXEC")
}
