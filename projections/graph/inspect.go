package graph

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// DescribeKey tells people in one line what a row of the graph says. It returns [ErrCorrupt] for a row that the graph
// cannot have written: one that does not decode, or whose key begins with the shard of another user.
func DescribeKey(key, value []byte) (string, error) {
	if len(key) < 3 {
		return "", errRow("key", key)
	}
	f, ok := rowForms[projections.Tag(key[2])]
	if !ok {
		return "", errRow("key", key)
	}
	d := describer{rest: key[3:]}
	fmt.Fprintf(&d.out, "%04x %s", binary.BigEndian.Uint16(key), f.name)
	for i, part := range strings.Fields(f.parts) {
		if err := d.part(part); err != nil {
			return "", errRow(f.name+" key", key)
		}
		if i == 0 && part != "hash" && events.Shard(binary.BigEndian.Uint16(key)) != events.ShardOf(d.id) {
			return "", errRow(f.name+" in a foreign shard", key)
		}
	}
	if len(d.rest) != 0 {
		return "", errRow(f.name+" key", key)
	}
	if f.value == nil && len(value) != 0 {
		return "", errRow(f.name, value)
	}
	if f.value != nil {
		if err := f.value(&d, value); err != nil {
			return "", err
		}
	}
	return d.out.String(), nil
}

// rowForm says how a row is read: what its key has after the tag, as the table in keys.go names it, and its value.
type rowForm struct {
	name, parts string
	value       func(d *describer, row []byte) error
}

var rowForms = map[projections.Tag]rowForm{
	tagEdge:              {"edge", "A B", (*describer).edge},
	tagBoardEdge:         {"board-edge", "A B b", (*describer).boardEdge},
	tagHeld:              {"held", "A B rel since b", nil},
	tagFollowing:         {"following", "A ^since B", nil},
	tagFollowingImplicit: {"following-implicitly", "A ^since B", nil},
	tagFollowedBoards:    {"followed-board", "A ^since B b", nil},
	tagExcludedBoards:    {"excluded-board", "A ^since B b", nil},
	tagBlocked:           {"blocked", "A ^since B", nil},
	tagMuted:             {"muted", "A ^since B", nil},
	tagUserCounts:        {"user-counts", "A", (*describer).userCounts},
	tagFollowers:         {"follower", "B ^since A", nil},
	tagFollowersImplicit: {"implicit-follower", "B ^since A", nil},
	tagReverse:           {"reverse", "B A", nil},
	tagBoard:             {"board", "B b", (*describer).board},
	tagBoardCounts:       {"board-counts", "B b", (*describer).boardCounts},
	tagBoards:            {"own-board", "B ^created b", nil},
	tagBoardFollowers:    {"board-follower", "B b ^since A", nil},
	tagBoardExcluders:    {"board-excluder", "B b ^since A", nil},
	tagTombstone:         {"tombstone", "hash", nil},
}

// describer cuts a key and collects the description.
type describer struct {
	out  strings.Builder
	rest []byte
	// id is the last id cut.
	id string
}

// part cuts one part of a key.
func (d *describer) part(name string) (err error) {
	switch name {
	case "^since", "^created":
		var since events.Micros
		if since, d.rest, err = cutSince(d.rest); err != nil {
			return err
		}
		d.field(name[1:], timeText(since))
	case "since":
		if len(d.rest) < 8 {
			return ErrCorrupt
		}
		d.field(name, timeText(events.Micros(binary.BigEndian.Uint64(d.rest))))
		d.rest = d.rest[8:]
	case "rel":
		if len(d.rest) < 1 {
			return ErrCorrupt
		}
		rel, ok := map[relationKind]string{relationFollow: "follow", relationExclude: "exclude"}[relationKind(d.rest[0])]
		if !ok {
			return ErrCorrupt
		}
		d.field(name, rel)
		d.rest = d.rest[1:]
	case "hash":
		if len(d.rest) != 16 {
			return ErrCorrupt
		}
		d.field(name, hex.EncodeToString(d.rest))
		d.rest = nil
	default:
		if d.id, d.rest, err = events.CutID(d.rest); err != nil {
			return err
		}
		if d.id == "" {
			d.field(name, `""`) // the default board
		} else {
			d.field(name, d.id)
		}
	}
	return nil
}

func (d *describer) field(name, value string) { fmt.Fprintf(&d.out, " %s=%s", name, value) }

func (d *describer) flag(name string, set bool) {
	if set {
		fmt.Fprintf(&d.out, " %s", name)
	}
}

// stamp tells a fact that was. Names that do not say so tell whether it is live.
func (d *describer) stamp(name string, s stamp) {
	if s != 0 {
		d.field(name, timeText(s.time()))
	}
}

func timeText(t events.Micros) string { return t.Time().Format("2006-01-02T15:04:05.000000Z") }

func (d *describer) edge(row []byte) error {
	var e edge
	if err := e.decode(row); err != nil {
		return err
	}
	d.stamp("follow-live", e.followLive)
	d.stamp("unfollow-live", e.unfollowLive)
	d.stamp("follow-backfill", e.followBackfill)
	d.stamp("unfollow-backfill", e.unfollowBackfill)
	d.stamp("implicit-since", e.implicit)
	d.standing("block", &e.block)
	d.standing("mute", &e.mute)
	d.flag("blocked-by", e.blockedBy)
	d.flag("blocked-by-live", e.blockedByLive)
	d.flag("boards", e.boards)
	return nil
}

func (d *describer) standing(name string, s *standing) {
	d.stamp(name+"-live", s.on)
	d.stamp("un"+name+"-live", s.off)
	d.stamp(name+"-backfill", s.backfill)
}

func (d *describer) boardEdge(row []byte) error {
	var b boardEdge
	if err := b.decode(row); err != nil {
		return err
	}
	d.stamp("follow-live", b.followLive)
	d.stamp("unfollow-live", b.unfollowLive)
	d.stamp("follow-backfill", b.followBackfill)
	d.stamp("unfollow-backfill", b.unfollowBackfill)
	return nil
}

func (d *describer) board(row []byte) error {
	var b board
	if err := b.decode(row); err != nil {
		return err
	}
	d.stamp("deleted", b.deleted)
	d.stamp("created-live", b.createdLive)
	d.stamp("created-backfill", b.createdBackfill)
	if b.titled != 0 {
		d.stamp("titled", b.titled)
		d.field("title", fmt.Sprintf("%q", b.title))
	}
	return nil
}

func (d *describer) userCounts(row []byte) error {
	var c UserCounts
	return d.counts(row, c.fields(), "following", "following-implicit", "followers", "followers-implicit", "boards",
		"followed-boards", "excluded-boards", "blocked", "muted")
}

func (d *describer) boardCounts(row []byte) error {
	var c BoardCounts
	return d.counts(row, c.fields(), "followers", "excluders", "followers-only")
}

func (d *describer) counts(row []byte, fields []*int64, names ...string) error {
	if err := decodeCounts(row, fields); err != nil {
		return err
	}
	for i, f := range fields {
		if *f != 0 {
			d.field(names[i], fmt.Sprint(*f))
		}
	}
	return nil
}
