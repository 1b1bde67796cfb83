package stores

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
)

// redisWindow is for how long Redis keeps plays. No month of the window is longer than 31 days.
const redisWindow = windowMonths * 31 * day

func playsKey(user uint32) string { return "s:" + workload.UserID(user) }

// appendPlay appends the two writes of one play: one adds the item by its time, and one drops the
// items that are older than the window.
func appendPlay(dst []byte, p play) []byte {
	key := playsKey(p.user)
	dst = programs.AppendCommand(dst, "ZADD", key, strconv.FormatInt(int64(p.playedAt), 10), strconv.FormatUint(p.item, 10))
	return programs.AppendCommand(dst, "ZREMRANGEBYSCORE", key, "-inf", strconv.FormatInt(int64(p.playedAt-redisWindow), 10))
}

// seenRedis is a server that holds plays.
type seenRedis struct{ *programs.Redis }

// writePlays writes plays and returns the time and the processor time of the server that it took.
func (s seenRedis) writePlays(ctx context.Context, plays []play) (took, used time.Duration, err error) {
	return writePipelines(ctx, s.Redis, plays, appendPlay, 2)
}

// These methods are different ways to ask Redis about candidates. Each appends the indexes of the
// unseen ones to out.

// unseenByZRange reads all plays of the reader and looks the candidates up in them.
func (s seenRedis) unseenByZRange(ctx context.Context, q *seenReader, out []uint32) ([]uint32, error) {
	played, err := s.Client.ZRange(ctx, playsKey(q.number), 0, -1).Result()
	if err != nil {
		return out, err
	}
	all := make(map[string]struct{}, len(played))
	for _, item := range played {
		all[item] = struct{}{}
	}
	for i, item := range q.itemTexts {
		if _, ok := all[item]; !ok {
			out = append(out, uint32(i))
		}
	}
	return out, nil
}

// unseenByZMScore asks for the score of each candidate.
func (s seenRedis) unseenByZMScore(ctx context.Context, q *seenReader, out []uint32) ([]uint32, error) {
	scores, err := s.Client.ZMScore(ctx, playsKey(q.number), q.itemTexts...).Result()
	for i, at := range scores {
		if at == 0 { // the client gives 0 for a member that is not in the set, and no play is of 1970
			out = append(out, uint32(i))
		}
	}
	return out, err
}

// unseenByMGet reads the bit strings of the months and probes them.
func (s seenRedis) unseenByMGet(ctx context.Context, q *seenReader, out []uint32) ([]uint32, error) {
	rows, err := s.Client.MGet(ctx, bitStringKeys(q.number)...).Result()
	if err != nil {
		return out, err
	}
	var filters [windowMonths]string
	for month, row := range rows {
		filters[month], _ = row.(string) // there is no string if there are no plays
	}
candidates:
	for i, item := range q.items {
		hash := hashItem(item)
		for _, f := range filters {
			if bitString(f).mayContain(hash) {
				continue candidates
			}
		}
		out = append(out, uint32(i))
	}
	return out, nil
}

// unseenByBitField makes the server probe the bit strings: it sends one BITFIELD for each month, in
// one pipeline.
func (s seenRedis) unseenByBitField(ctx context.Context, q *seenReader, out []uint32) ([]uint32, error) {
	size := uint64(bitStringBytes(q.playsPerMonth)) * 8
	args := make([]any, 0, 3*positionsPerItem*len(q.items))
	for _, item := range q.items {
		pos := bitPosition(hashItem(item))
		for range positionsPerItem {
			args = append(args, "get", "u1", pos.next(size))
		}
	}

	pipe := s.Client.Pipeline()
	var found [windowMonths]*redis.IntSliceCmd
	for month, key := range bitStringKeys(q.number) {
		found[month] = pipe.BitField(ctx, key, args...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return out, err
	}
candidates:
	for i := range q.items {
		for _, f := range found {
			ones := int64(0) // set bits among the positions of the item
			for _, bit := range f.Val()[i*positionsPerItem : (i+1)*positionsPerItem] {
				ones += bit
			}
			if ones == positionsPerItem {
				continue candidates
			}
		}
		out = append(out, uint32(i))
	}
	return out, nil
}

// positionsPerItem is how many bits of a Bloom filter an item sets. It is the default of skein.
const positionsPerItem = 12

// bitStringKeys returns the keys of the bit strings of a user, one for each month of the window.
func bitStringKeys(user uint32) []string {
	keys := make([]string, windowMonths)
	for month := range keys {
		keys[month] = fmt.Sprintf("b:%d:%s", month, workload.UserID(user))
	}
	return keys
}

// bitStringBytes returns the size at which a filter of the plays has half of its bits set, as the
// filters of skein have.
func bitStringBytes(plays int) int {
	return int(math.Ceil(float64(plays)*positionsPerItem/math.Ln2/64)) * 8
}

// hashItem returns the number from which the positions of an item follow.
func hashItem(item uint64) uint64 {
	var id [8]byte
	binary.LittleEndian.PutUint64(id[:], item)
	return xxh3.Hash(id[:])
}

// bitPosition is a random number that begins as the hash of an item, and gives the positions of the
// item one after the other, as in skein.
type bitPosition uint64

// next returns the next position in a filter of size bits. It multiplies, because that is faster
// than a division.
func (p *bitPosition) next(size uint64) uint64 {
	pos, _ := bits.Mul64(uint64(*p), size)
	*p = *p*6364136223846793005 + 1442695040888963407
	return pos
}

// bitString is a Bloom filter as SETBIT would make it: the first bit is the highest of the first
// byte.
type bitString string

// makeBitString returns the filter of some items, of size bytes.
func makeBitString(size int, items func(yield func(uint64) bool)) bitString {
	made := make([]byte, size)
	for item := range items {
		pos := bitPosition(hashItem(item))
		for range positionsPerItem {
			at := pos.next(uint64(size) * 8)
			made[at>>3] |= 0x80 >> (at & 7)
		}
	}
	return bitString(made)
}

// mayContain reports whether all bits of an item are set.
func (b bitString) mayContain(hash uint64) bool {
	pos, size := bitPosition(hash), uint64(len(b))*8
	if size == 0 {
		return false
	}
	for range positionsPerItem {
		if at := pos.next(size); b[at>>3]&(0x80>>(at&7)) == 0 {
			return false
		}
	}
	return true
}

// loadPlays writes the plays of readers, as sorted sets and as bit strings.
func (s seenRedis) loadPlays(ctx context.Context, readers []seenReader) error {
	for i := range readers {
		r := &readers[i]
		pipe := s.Client.Pipeline()
		for month, key := range bitStringKeys(r.number) {
			var members []redis.Z
			items := func(yield func(uint64) bool) {
				for n := range r.playsPerMonth {
					item := playedItem(r.number, month*r.playsPerMonth+n)
					members = append(members, redis.Z{
						Score: float64(monthStart(month) + events.Micros(n)), Member: strconv.FormatUint(item, 10),
					})
					if !yield(item) {
						return
					}
				}
			}
			pipe.Set(ctx, key, string(makeBitString(bitStringBytes(r.playsPerMonth), items)), 0)
			pipe.ZAdd(ctx, playsKey(r.number), members...)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("loading redis: %w", err)
		}
	}
	return nil
}
