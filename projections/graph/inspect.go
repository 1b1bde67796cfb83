package graph

import (
	"encoding/hex"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// RowKinds returns the names of the kinds of rows that [DescribeRow] can describe.
func RowKinds() []string { return projections.RowKinds(rowForms) }

// DescribeRow describes a row of the graph for people. It returns [projections.ErrCorrupt] for a
// row that the graph cannot have written: one that does not decode, or whose key begins with the
// shard of another user.
func DescribeRow(key, value []byte) (*projections.Description, error) {
	return projections.DescribeForm(rowForms, key, value)
}

// rowForms has the form of each row of the table in keys.go. Parts are the parts of the key in the
// notation of that table. The names of rows and fields are output of commands, which scripts may
// read, so they do not change when the code uses another name.
var rowForms = map[projections.Tag]projections.RowForm{
	tagOutEdge:              {Name: "edge", Parts: "A B", Value: describeEdge},
	tagOutBoardEdge:         {Name: "board-edge", Parts: "A B b", Value: describeBoardEdge},
	tagRegion:               {Name: "edge-of", Parts: "B part A", Value: describeRegion},
	tagFollowingExplicit:    {Name: "following", Parts: "A ^since B", Value: describeSettingsValue},
	tagFollowingImplicit:    {Name: "following-implicitly", Parts: "A ^since B", Value: describeSettingsValue},
	tagFollowedBoards:       {Name: "followed-board", Parts: "A ^since B b"},
	tagExcludedBoards:       {Name: "excluded-board", Parts: "A ^since B b"},
	tagBlocked:              {Name: "blocked", Parts: "A ^since B"},
	tagMuted:                {Name: "muted", Parts: "A ^since B"},
	tagUserCounts:           {Name: "user-counts", Parts: "A", Value: describeUserCounts},
	tagFollowersExplicit:    {Name: "follower", Parts: "B ^since A"},
	tagFollowersImplicit:    {Name: "implicit-follower", Parts: "B ^since A"},
	tagUnlistedInEdges:      {Name: "unlisted-in-edge", Parts: "B A"},
	tagBoard:                {Name: "board", Parts: "B b", Value: describeBoard},
	tagBoardCounts:          {Name: "board-counts", Parts: "B b", Value: describeBoardCounts},
	tagBoards:               {Name: "own-board", Parts: "B ^created b"},
	tagBoardFollowers:       {Name: "board-follower", Parts: "B b ^since A"},
	tagBoardExcluders:       {Name: "board-excluder", Parts: "B b ^since A"},
	tagTombstone:            {Name: "tombstone", Parts: "hash", Store: true},
	tagBoardDeletion:        {Name: "board-deletion", Parts: "hash hash-of-board", Special: specialParts, Value: describeBoardDeletion, Store: true},
	tagBoardRegion:          {Name: "board-edge-of", Parts: "B b part A", Value: describeRegion},
	tagInEdge:               {Name: "in-edge", Parts: "A B", Remote: true, Value: describeEdge},
	tagInBoardEdge:          {Name: "in-board-edge", Parts: "A B b", Remote: true, Value: describeBoardEdge},
	tagUnlistedInBoardEdges: {Name: "unlisted-in-board-edge", Parts: "B b A"},
	tagTimedMutes:           {Name: "muted-until", Parts: "A ^until B", Value: describeMutedSince},
	tagFavorites:            {Name: "favorite", Parts: "A ^since B"},
	tagNotifying:            {Name: "notifying", Parts: "A ^since B"},
}

// specialParts has functions that describe the parts of keys that are neither ids nor times.
var specialParts = map[string]func(*projections.Description) error{"hash-of-board": describeBoardHash}

// describeBoardHash adds the hash of a board, which is the last part of the key.
func describeBoardHash(d *projections.Description) error {
	hash, err := d.Cut(16)
	if err == nil {
		d.Field("hash-of-board", hex.EncodeToString(hash))
	}
	return err
}

func describeBoardDeletion(d *projections.Description, row []byte) error {
	deletion, err := decodeBoardDeletion(row)
	d.Flag("lives-again", deletion == boardRecreated)
	return err
}

func describeRegion(d *projections.Description, row []byte) error {
	regionRow, err := DecodeRegionRow(nil, row)
	d.Flag("follows-not", !regionRow.Follows)
	d.Flag("boards", regionRow.BoardsOnly)
	return err
}

// describeFactTime adds the time of a fact to a description, if there is such a fact.
func describeFactTime(d *projections.Description, name string, order factOrder) {
	if order != 0 {
		d.Time(name, order.time())
	}
}

func describeEdge(d *projections.Description, row []byte) error {
	var e edge
	if err := e.decodeRow(row); err != nil {
		return err
	}
	describeFactTime(d, "follow-live", e.followLive)
	describeFactTime(d, "unfollow-live", e.unfollowLive)
	describeFactTime(d, "follow-backfill", e.followBackfill)
	describeFactTime(d, "unfollow-backfill", e.unfollowBackfill)
	describeFactTime(d, "implicit-since", e.implicitSince)
	describeToggle(d, "block", &e.block)
	describeToggle(d, "mute", &e.mute.toggle)
	if e.mute.liveUntil != 0 {
		d.Time("mute-live-until", e.mute.liveUntil)
	}
	if e.mute.backfillUntil != 0 {
		d.Time("mute-backfill-until", e.mute.backfillUntil)
	}
	describeToggle(d, "blocked-by", &e.blockedBy)
	if e.settings.order != 0 {
		describeFactTime(d, "settings", e.settings.order)
		describeSettings(d, e.settings.settings)
	}
	d.Flag("boards", e.mayHaveBoardEdges)
	return nil
}

// describeSettings adds the settings of a follow that are on, each as a flag.
func describeSettings(d *projections.Description, s events.FollowSettings) {
	d.Flag("hide-repins", s.Has(events.SettingHideRepins))
	d.Flag("notify", s.Has(events.SettingNotify))
	d.Flag("favorite", s.Has(events.SettingFavorite))
}

func describeSettingsValue(d *projections.Description, row []byte) error {
	s, err := decodeSettingsValue(row)
	describeSettings(d, s)
	return err
}

// describeMutedSince adds the beginning of a mute with an end. It is the value of the row, because
// the end is in the key.
func describeMutedSince(d *projections.Description, row []byte) error {
	since, rest, err := cutDescendingTime(row)
	if err != nil || len(rest) != 0 {
		return projections.RowError("timed mute", row)
	}
	d.Time("since", since)
	return nil
}

// describeToggle adds the times of the facts of a toggle, which is called name.
func describeToggle(d *projections.Description, name string, facts *toggle) {
	describeFactTime(d, name+"-live", facts.liveBegin)
	describeFactTime(d, "un"+name+"-live", facts.liveEnd)
	describeFactTime(d, name+"-backfill", facts.backfillBegin)
}

func describeBoardEdge(d *projections.Description, row []byte) error {
	var b boardEdge
	if err := b.decodeRow(row); err != nil {
		return err
	}
	describeFactTime(d, "follow-live", b.followLive)
	describeFactTime(d, "unfollow-live", b.unfollowLive)
	describeFactTime(d, "follow-backfill", b.followBackfill)
	describeFactTime(d, "unfollow-backfill", b.unfollowBackfill)
	return nil
}

func describeBoard(d *projections.Description, row []byte) error {
	var b boardRow
	if err := b.decodeRow(row); err != nil {
		return err
	}
	describeFactTime(d, "created-live", b.createdLive)
	describeFactTime(d, "created-backfill", b.createdBackfill)
	if b.titleOrder != 0 {
		describeFactTime(d, "titled", b.titleOrder)
		d.Quoted("title", b.title)
	}
	return nil
}

func describeUserCounts(d *projections.Description, row []byte) error {
	var u userCountsRow
	return describeCounts(d, row, u.fields(),
		"following", "following-implicit", "followers", "followers-implicit", "boards",
		"followed-boards", "excluded-boards", "blocked", "muted", "other-edges",
		"timed-mutes", "favorites", "notifying", "kept")
}

func describeBoardCounts(d *projections.Description, row []byte) error {
	var c BoardCounts
	return describeCounts(d, row, c.fields(), "followers", "excluders", "followers-only")
}

// describeCounts adds the counts of a row that are not 0. The names are those of the fields, by
// index.
func describeCounts(d *projections.Description, row []byte, fields []*int64, names ...string) error {
	if err := decodeCounts(row, fields); err != nil {
		return err
	}
	for i, field := range fields {
		if *field != 0 {
			d.Int(names[i], *field)
		}
	}
	return nil
}
