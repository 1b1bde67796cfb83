package audit

import "context"

// maxItems is how many items of one owner are counted. Further items are not compared, so that an
// owner with millions of pins does not take much memory.
const maxItems = 100_000

// itemCounts counts the pins of an owner by the item that they show. It is derived from the pins in
// inbox.
type itemCounts struct {
	owner          string
	byItem         map[string]int64
	byItemAndBoard map[[2]string]int64
}

// add counts a pin, unless its item is beyond the limit.
func (s *itemCounts) add(item, board string) {
	_, isCounted := s.byItem[item]
	if !isCounted && len(s.byItem) >= maxItems {
		return
	}
	s.byItem[item]++
	s.byItemAndBoard[[2]string{item, board}]++
}

// checkItems compares the pins per item that counters has with those in inbox.
func (a *Audit) checkItems(ctx context.Context, s *itemCounts) error {
	lookups := 0
	compare := func(item string, board *string, want int64) error {
		got, err := a.counters.CountPinsShowing(item, s.owner, board)
		if err != nil {
			return err
		}
		if got != want {
			on := "in all"
			if board != nil {
				on = "on board " + *board
			}
			a.addFinding("items", []string{"inbox", "counters"}, "%s %d pins show item %s, counters has %d", on, want, item, got)
		}
		lookups++
		if lookups%lookupsPerRest == 0 {
			return a.rest(ctx)
		}
		return nil
	}

	for item, want := range s.byItem {
		if err := compare(item, nil, want); err != nil {
			return err
		}
	}
	for key, want := range s.byItemAndBoard {
		if err := compare(key[0], &key[1], want); err != nil {
			return err
		}
	}
	return nil
}
