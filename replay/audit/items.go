package audit

import "context"

// shownMost is the most items of one owner that are counted in memory. Items beyond it are not compared.
const shownMost = 100_000

// shown counts the living pins of an owner by the item that they show, on each board and in all. It is derived from the pins of inbox.
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

// shows compares the items of an owner's pins in counters with the pins of inbox.
func (a *Audit) shows(ctx context.Context, s *shown) error {
	n := 0
	same := func(item string, board *string, want int64) error {
		got, err := a.counters.CountPinsShowing(item, s.owner, board)
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
