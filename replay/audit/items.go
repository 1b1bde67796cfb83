package audit

import (
	"context"
	"errors"
)

// shownMost bounds how many items of one owner are counted in memory: what is beyond is not compared.
const shownMost = 100_000

// shown counts which items the living pins of an owner show, by the pins that inbox has: on each board, and in all.
type shown struct {
	owner string
	all   map[string]int64
	on    map[[2]string]int64
}

func (s *shown) add(item, board string) {
	if _, ok := s.all[item]; !ok && len(s.all) >= shownMost {
		return
	}
	s.all[item]++
	s.on[[2]string{item, board}]++
}

// shows compares what counters says of where items are shown with the pins that inbox has.
func (a *Audit) shows(ctx context.Context, s *shown) error {
	n := 0
	same := func(item string, board *string, want int64) error {
		got, err := a.counters.Shows(item, s.owner, board)
		if err != nil {
			return err
		}
		if got != want {
			on := "in all"
			if board != nil {
				on = "on board " + *board
			}
			a.find("items", []string{"inbox", "counters"}, "%s %d pins show item %s, counters has %d", on, want, item, got)
		}
		if n++; n%restRows == 0 {
			return a.rest(ctx)
		}
		return nil
	}
	for item, want := range s.all {
		if err := same(item, nil, want); err != nil {
			return err
		}
	}
	for on, want := range s.on {
		if err := same(on[0], &on[1], want); err != nil {
			return err
		}
	}
	return nil
}

var errEnough = errors.New("audit: the limit of a list is reached")

// likes compares what inbox and counters have of the items that a user likes, each in its own rows.
func (a *Audit) likes(ctx context.Context, user string) error {
	// The limit is of both, in one order of keys: what is read of one is read of the other.
	walk := func(each func(string, func(string, bool) error) error, do func(item string, holds bool) error) (n int64, err error) {
		read := 0
		err = each(user, func(item string, holds bool) error {
			if a.limits.List > 0 && read >= a.limits.List {
				return errEnough
			}
			if holds {
				n++
			}
			if read++; read%restRows == 0 {
				if err := a.rest(ctx); err != nil {
					return err
				}
			}
			return do(item, holds)
		})
		if errors.Is(err, errEnough) {
			return unknown, nil
		}
		return n, err
	}
	one, err := walk(a.counters.EachLike, func(item string, holds bool) error {
		other, err := a.inbox.Likes(user, item)
		if err == nil && other != holds {
			a.find("likes", []string{"inbox", "counters"}, "item %s: liked by counters: %t, by inbox: %t", item, holds, other)
		}
		return err
	})
	if err != nil {
		return err
	}
	other, err := walk(a.inbox.EachLike, func(string, bool) error { return nil })
	if err == nil && one != unknown && other != unknown && one != other {
		a.find("likes", []string{"inbox", "counters"}, "counters has %d of the user, inbox %d", one, other)
	}
	return err
}
