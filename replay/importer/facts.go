package importer

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// translator turns the rows of one import into events.
type translator struct {
	kind   Kind
	source string
	// start is the recorded start of the import: the time of rows without one, and the latest time that a row may
	// have. The log would cut a later one to its own time; cut here, it is the same whenever the import is run again.
	start   events.Micros
	columns columns
	// clamped counts the rows with a time after start.
	clamped uint64
}

// events returns the events of a row, each of another kind, so that they can share the row's offset.
func (t *translator) events(r *row) ([]*skeinv1.Event, error) {
	if r.err != nil {
		return nil, r.err
	}
	at := t.start
	if t.columns[when] >= 0 {
		var err error
		if at, err = ParseTime(r.fields[when]); err != nil {
			return nil, fmt.Errorf("the time %w", err)
		}
	}
	evs := t.follows(r)
	if t.kind == Boards {
		evs = t.boards(r)
	}
	late := at > t.start
	occurred := timestamppb.New(min(at, t.start).Time())
	for _, ev := range evs {
		ev.Source, ev.Offset, ev.OccurredAt = t.source, r.number, occurred
		if refused := events.Validate(ev); refused != nil {
			return nil, errors.New(refused.Message)
		}
	}
	if late {
		t.clamped++
	}
	return evs, nil
}

func (t *translator) follows(r *row) []*skeinv1.Event {
	return []*skeinv1.Event{{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{
		FollowerId: r.fields[follower], UserId: r.fields[user],
	}}}}
}

// boards: a row with a follower says that the board is followed; a row with a title, or without a follower, that the
// board exists.
func (t *translator) boards(r *row) []*skeinv1.Event {
	b := &skeinv1.Board{OwnerId: r.fields[owner], BoardId: r.fields[board]}
	var evs []*skeinv1.Event
	if r.fields[follower] == "" || r.fields[title] != "" {
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_BoardCreated{
			BoardCreated: &skeinv1.BoardCreated{Board: b, Title: r.fields[title]},
		}})
	}
	if r.fields[follower] != "" {
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_BoardFollowed{
			BoardFollowed: &skeinv1.BoardFollowed{FollowerId: r.fields[follower], Board: b},
		}})
	}
	return evs
}

// pair is what --first keeps once: who follows what.
type pair struct{ follower, user, owner, board string }

// String is the pair for people.
func (p pair) String() string {
	if p.user != "" {
		return p.follower + " → " + p.user
	}
	return fmt.Sprintf("%s → board %q of %s", p.follower, p.board, p.owner)
}

func pairOf(r *row) pair {
	return pair{r.fields[follower], r.fields[user], r.fields[owner], r.fields[board]}
}

func microsOf(t time.Time) events.Micros { return events.Micros(t.UnixMicro()) }
