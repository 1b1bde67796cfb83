package store

import (
	"errors"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestCheckpointSurvivesEncoding checks that a checkpoint is decoded as it was encoded, and that
// any other bytes are reported as damaged.
func TestCheckpointSurvivesEncoding(t *testing.T) {
	c := events.Cursor{Log: events.LogID{1, 2}, Epoch: 3, Seq: 4, Checksum: 5, LastTime: 6, WarmSeq: 2, WarmTime: 1}
	for _, p := range []progress{{}, {Seq: 5}, {Seq: 5, Slot: 999}, {Seq: 1 << 60, Slot: 1, Step: 1 << 30}} {
		b := encodeCheckpoint(c, p)
		gotC, gotP, err := parseCheckpoint(b)
		if err != nil || gotC != c || gotP != p {
			t.Errorf("got %+v, %+v, %v, want %+v, %+v", gotC, gotP, err, c, p)
		}

		for n := range b {
			if _, _, err := parseCheckpoint(b[:n]); !errors.Is(err, projections.ErrCorrupt) {
				t.Errorf("%d of %d bytes: got error %v, want %v", n, len(b), err, projections.ErrCorrupt)
			}
		}

		if _, _, err := parseCheckpoint(append(b, 0)); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("an extra byte: got error %v, want %v", err, projections.ErrCorrupt)
		}
	}
	if _, _, err := parseCheckpoint(encodeCheckpoint(c, progress{Seq: 4, Slot: 1})); !errors.Is(err, projections.ErrCorrupt) {
		t.Errorf("progress inside a whole envelope: got error %v, want %v", err, projections.ErrCorrupt)
	}
}

// TestDamagedRejectRowIsReported checks that a row of a reject that is cut or longer is reported as
// damaged.
func TestDamagedRejectRowIsReported(t *testing.T) {
	r := StoredReject{7, events.Reject{Seq: 1 << 40, Slot: -1, Data: []byte("data")}}
	r.Rejection = events.Rejection{Index: -1, Reason: 3, Field: "f", Message: "why"}
	b := r.encode()
	for n := range b {
		if _, err := parseReject(b[:n]); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("%d of %d bytes: got error %v, want %v", n, len(b), err, projections.ErrCorrupt)
		}
	}
	if _, err := parseReject(append(b, 0)); !errors.Is(err, projections.ErrCorrupt) {
		t.Errorf("an extra byte: got error %v, want %v", err, projections.ErrCorrupt)
	}
}
