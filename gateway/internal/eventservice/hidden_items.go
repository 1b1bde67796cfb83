package eventservice

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// hiddenItemsOf are the live events of one call by which a user hides and shows items, in order.
type hiddenItemsOf struct {
	user   string
	events []*events.CheckedEvent
}

// beyondHiddenLimit refuses the events of a call by which a user would hide more than [inbox.MaxHiddenItems] items. It looks at the inbox as this
// process knows it, so it is a guard and not an exact limit: concurrent calls may exceed it. Backfills have happened, and are always accepted. So is
// every event while the inbox cannot be asked.
func (s *Service) beyondHiddenLimit(ctx context.Context, evs []events.CheckedEvent) (refused []events.Rejection, err error) {
	users := groupHiddenItems(evs)
	if len(users) == 0 || s.Inbox == nil {
		return nil, nil
	}
	r, err := s.OpenFeed(ctx, nil)
	if err != nil {
		return nil, ctx.Err()
	}
	defer r.Close()

	err = views.RunUntilResolved(ctx, func() error {
		refused = nil
		for _, u := range users {
			more, err := u.refused(r)
			if err != nil {
				return err
			}
			refused = append(refused, more...)
		}
		return nil
	}, &r.StoreView)
	if err != nil {
		return nil, ctx.Err()
	}
	return refused, nil
}

// groupHiddenItems groups the live events that hide and show items by user. It leaves out users who only show items.
func groupHiddenItems(evs []events.CheckedEvent) (hiding []*hiddenItemsOf) {
	byUser := map[string]*hiddenItemsOf{}
	hides := map[string]bool{}
	for i := range evs {
		ev := &evs[i]
		if ev.Backfill || ev.Kind.Topic() != events.TopicHidden {
			continue
		}
		u := byUser[ev.User]
		if u == nil {
			u = &hiddenItemsOf{user: ev.User}
			byUser[ev.User] = u
		}
		u.events = append(u.events, ev)
		if ev.Kind == events.ItemHidden && !hides[ev.User] {
			hides[ev.User] = true
			hiding = append(hiding, u)
		}
	}
	return hiding
}

// refused goes through the events in order and returns refusals of those that go beyond the limit.
func (u *hiddenItemsOf) refused(r *views.Inbox) (refused []events.Rejection, err error) {
	added := int64(0) // by the events of the call so far
	hiddenNow := map[string]bool{}
	for _, ev := range u.events {
		total, hidden, err := r.Hiding(u.user, ev.Item)
		if err != nil {
			return nil, err
		}
		if now, known := hiddenNow[ev.Item]; known {
			hidden = now
		}

		hides := ev.Kind == events.ItemHidden
		switch {
		case hides && !hidden && total+added >= inbox.MaxHiddenItems:
			refused = append(refused, events.Rejection{
				Index: ev.Index, Reason: skeinv1.Reason_REASON_HIDDEN_ITEM_LIMIT, Field: ev.Kind.String(),
				Message: fmt.Sprintf("%s is beyond the %d items that one may hide", ev.Kind, inbox.MaxHiddenItems),
			})
			continue
		case hides && !hidden:
			added++
		case !hides && hidden:
			added--
		}
		hiddenNow[ev.Item] = hides
	}
	return refused, nil
}
