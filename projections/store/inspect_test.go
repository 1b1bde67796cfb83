package store

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestRuntimeRowsAreDescribed checks the descriptions of the store's own rows, and that other rows
// and damaged ones are corrupt.
func TestRuntimeRowsAreDescribed(t *testing.T) {
	cursor := events.Cursor{Log: events.LogID{1}, Epoch: 2, Seq: 7, LastTime: 1_700_000_000_000_001}
	reject := StoredReject{Number: 3, Reject: events.Reject{
		Seq: 5, Slot: -1, Rejection: events.Rejection{Message: "is no envelope"},
	}}
	for _, tt := range []struct {
		key, value []byte
		want       string
	}{
		{formatKey, []byte{0, 0, 0, 1}, "ffff format version=1"},
		{fingerprintKey, []byte(`{"name":"x"}`), `ffff fingerprint {"name":"x"}`},
		{
			checkpointKey, encodeCheckpoint(cursor, progress{}),
			"ffff checkpoint log=01000000000000000000000000000000 epoch=2 seq=7 last-time=2023-11-14T22:13:20.000001Z",
		},
		{
			checkpointKey, encodeCheckpoint(cursor, progress{Seq: 8, Slot: 1, Step: 4}),
			"ffff checkpoint log=01000000000000000000000000000000 epoch=2 seq=7 last-time=2023-11-14T22:13:20.000001Z " +
				"in-progress: seq=8 slot=1 step=4",
		},
		{
			importKey{events.UserFollowed, "old"}.append(nil), binary.BigEndian.AppendUint64(nil, 9),
			"ffff backfill kind=user_followed source=old highest-offset=9",
		},
		{closedKey(""), nil, `ffff backfill-closed source=""`},
		{rejectCountKey, binary.BigEndian.AppendUint64(nil, 3), "ffff rejects count=3"},
		{rejectKey(3), reject.encode(), "ffff reject number=3 seq=5 slot=-1: is no envelope"},
	} {
		if got, err := projections.Text(DescribeRow(tt.key, tt.value)); got != tt.want || err != nil {
			t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
		}
	}

	for _, row := range [][2]string{
		{"", ""},
		{"\xff\xff", ""},
		{"\xff\xff\x0f", ""},
		{"\x00\x00\x02", ""},
		{"\xff\xff\x10", ""},
		{"\xff\xff\x00", "\x01"},
		{"\xff\xff\x02", "\x01\x00"},
		{"\xff\xff\x03a", "12345678"},
		{"\xff\xff\x05", ""},
		{"\xff\xff\x06\x00\x00", "\x02"},
	} {
		if got, err := projections.Text(DescribeRow([]byte(row[0]), []byte(row[1]))); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("%x: %q, %v, want ErrCorrupt", strings.Join(row[:], " "), got, err)
		}
	}
}
