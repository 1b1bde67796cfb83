package archive

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// matchUser returns a function for Scrub that erases a user like the erasure of skein: plays by the
// user lose their user, and all other events about the user are dropped.
func matchUser(user string) func(ev *events.Event) (*events.Event, bool) {
	return func(ev *events.Event) (*events.Event, bool) {
		switch {
		case ev.User != user && ev.Peer != user && ev.RepinUser != user:
			return ev, true
		case ev.Kind == events.Played && ev.User == user:
			changed := *ev
			changed.User = ""
			return &changed, true
		}

		return nil, false
	}
}

// TestScrubChangesOnlyMatches tests I12: a scrub removes or changes the events and rejects that match.
// All others stay the same, with their times and cursors.
func TestScrubChangesOnlyMatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		envs := drawLog(rt, 20)
		const user = "ffffffff-ffff-4fff-bfff-ffffffffffff"
		b := newMemoryBucket()
		a := mustOpen(rt, b)
		mustSeal(rt, a, drawSegments(rt, envs)...)
		oldObjects := len(b.objects)

		// Compute what the scrub should leave, and count what it should change.
		want := toArchival(envs)
		wantDone := ScrubResult{}
		for _, env := range want {
			evs := env.Events
			rejects := env.Rejects
			env.Events, env.Rejects, env.Kinds = nil, nil, 0
			for i := range evs {
				ev, keep := matchUser(user)(&evs[i])
				switch {
				case !keep:
					wantDone.Dropped++
					continue
				case ev != &evs[i]:
					wantDone.Changed++
				}

				env.Events = append(env.Events, *ev)
				env.Kinds |= events.Kinds(ev.Kind)
			}

			for _, r := range rejects {
				if bytes.Contains(r.Data, []byte(user)) {
					wantDone.Rejects++
				} else {
					env.Rejects = append(env.Rejects, r)
				}
			}
		}

		var progress []uint64 // pairs of the bytes that are done and the total
		keepReject := func(r *events.Reject) (*events.Reject, bool) { return r, !bytes.Contains(r.Data, []byte(user)) }
		got, err := a.Scrub(ctx, matchUser(user), keepReject, func(done, total uint64) {
			progress = append(progress, done, total)
		})
		if err != nil {
			rt.Fatal(err)
		}
		if n := len(progress); progress[n-1] != progress[n-2] {
			rt.Errorf("progress: got %v, want all bytes at the end", progress)
		}

		// How many segments a scrub rewrites depends on the drawn segments, but without a match it rewrites
		// none.
		hasMatches := wantDone != (ScrubResult{})
		wantDone.Segments = got.Segments
		if diff := cmp.Diff(wantDone, got); diff != "" {
			rt.Fatalf("result of the scrub (-want +got):\n%s", diff)
		}
		if got.Segments > oldObjects {
			rt.Fatalf("rewritten segments: got %d, want at most %d", got.Segments, oldObjects)
		}
		if (got.Segments > 0) != hasMatches {
			rt.Fatalf("rewritten segments: got %d, want some: %v", got.Segments, hasMatches)
		}

		a = mustOpen(rt, b)
		after, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1<<20)
		if err != nil {
			rt.Fatal(err)
		}
		if d := diffEnvelopes(want, after); d != "" {
			rt.Fatalf("envelopes after the scrub (-want +got):\n%s", d)
		}
		if err := a.Check(ctx, nil); err != nil {
			rt.Fatal(err)
		}
		if len(b.objects) != oldObjects {
			rt.Fatalf("objects after the scrub: got %d, want %d", len(b.objects), oldObjects)
		}
	})
}

// TestScrubbedIDIsInNoFile tests I12: after a scrub no file of the archive contains the erased id,
// neither as text nor in a compressed dictionary.
func TestScrubbedIDIsInNoFile(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	env := newEnvelope(1, events.PinCreated, 3)
	other := newEnvelope(2, events.Played, 3)
	for i := range env.Events {
		env.Events[i].User = "somebody"
		env.Events[i].Peer = ""
		other.Events[i].User = "somebody"
	}

	env.Events[1].User = "erased-user"
	other.Events[1].User = "erased-user"
	env.Rejects = []events.Reject{{Seq: 1, Slot: 3, Data: []byte("about erased-user")}}
	env.Rejects[0].Rejection.Index = 3
	mustSeal(t, a, []*events.Envelope{env, other})
	if !bucketContains(t, a, "erased-user") {
		t.Fatal("id before the scrub: got none, want it in a file")
	}

	done, err := a.Scrub(t.Context(), matchUser("erased-user"), func(r *events.Reject) (*events.Reject, bool) {
		changed := *r
		changed.Data = nil
		return &changed, true
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ScrubResult{Dropped: 1, Changed: 1, Rejects: 1, Segments: 2}, done); diff != "" {
		t.Fatalf("result of the scrub (-want +got):\n%s", diff)
	}
	if bucketContains(t, a, "erased-user") {
		t.Error("erased id after the scrub: got it in a file, want none")
	}
	if !bucketContains(t, a, "somebody") {
		t.Error("other id after the scrub: got none, want it in a file")
	}
}

// bucketContains reports whether any object contains a text, in its bytes or in the dictionaries of
// its blocks.
func bucketContains(t *testing.T, a *Archive, text string) (found bool) {
	for name, data := range a.bucket.(*memoryBucket).objects {
		found = found || bytes.Contains(data, []byte(text)) || strings.Contains(name, text)
	}

	for _, s := range a.currentManifest().segments {
		r, err := openSegment(t.Context(), a.bucket, a.log, s)
		if err != nil {
			t.Fatal(err)
		}
		err = r.scanBlocks(t.Context(), 0, func(_ *blockInfo, b *block) error {
			for _, ids := range [][]string{b.users, b.items, b.names, b.rejectDatas} {
				found = found || slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(id, text) })
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	return found
}
