package graphservice

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// page has what the answers of all lists have in common.
type page struct {
	entries   []graph.Entry
	nextToken string // empty on the last page
	total     uint32 // the length of the whole list; 0 for mutuals, which are not counted
	position  string
}

// ListIDOf returns the id that the page tokens of a list have.
func ListIDOf(l graph.List) pagetoken.ListID {
	return pagetoken.NewListID(byte(l.Kind), l.User, l.Board, l.Peer)
}

// readPage reads the page of a list that a request asks for. It reads at the position of the page
// before it, or at a later one, so that an entry that was removed by then does not appear again
// (I9).
func (s *Service) readPage(
	ctx context.Context, l graph.List, req views.ListRequest, info *call.Info,
) (p page, err error) {
	id := ListIDOf(l)
	start, err := s.StartPage(req, id)
	if err != nil {
		return p, err
	}
	r, err := s.OpenGraph(ctx, info, start.AtLeast, start.Token)
	if err != nil {
		return p, err
	}
	defer r.Close()

	if err := info.ReserveLongPage(ctx, start.Size); err != nil {
		return p, err
	}
	var next graph.PageCursor
	err = views.RunUntilResolved(ctx, func() (err error) {
		p.entries, next, err = r.List(ctx, l, start.Cursor, start.Size)
		return err
	}, &r.StoreView)
	if err != nil {
		return p, err
	}
	total, err := r.Total(l)
	if err != nil {
		return p, err
	}

	p.total = call.Count(total)
	p.position = r.Position
	if next != nil {
		p.nextToken = s.Keys.Sign(pagetoken.Token{List: id, Position: views.NextPagePosition(&r.StoreView), Cursor: next})
	}
	return p, nil
}

// followEntries returns entries of lists of follows as answers have them.
func followEntries(entries []graph.Entry) []*skeinv1.FollowEntry {
	list := make([]*skeinv1.FollowEntry, len(entries))
	follows := make([]skeinv1.FollowEntry, len(entries)) // one allocation for all entries
	times := call.NewTimes(len(entries))
	for i, e := range entries {
		list[i] = &follows[i]
		list[i].UserId = e.User
		list[i].Kind = FollowKinds[e.Kind]
		list[i].FollowTime = times.Next(e.Since)
		list[i].Settings = FollowSettingsOf(e.Settings)
	}
	return list
}

// boardEntries returns entries of lists of boards as answers have them.
func boardEntries(entries []graph.Entry) []*skeinv1.BoardEntry {
	list := make([]*skeinv1.BoardEntry, len(entries))
	times := call.NewTimes(len(entries))
	for i, e := range entries {
		list[i] = &skeinv1.BoardEntry{
			Board: &skeinv1.Board{OwnerId: e.User, BoardId: e.Board},
			Time:  times.Next(e.Since),
			Title: e.Title,
		}
	}
	return list
}

// FollowSettingsOf returns the settings of a follow as answers have them. It returns nil if all of
// them are off.
func FollowSettingsOf(s events.FollowSettings) *skeinv1.FollowSettings {
	if s == 0 {
		return nil
	}
	return &skeinv1.FollowSettings{
		HideRepins: s.Has(events.SettingHideRepins),
		Notify:     s.Has(events.SettingNotify),
		Favorite:   s.Has(events.SettingFavorite),
	}
}

// SettingOf returns the setting to which the field "only" restricts a list of follows, or 0 if the
// field is not set.
func SettingOf(only skeinv1.FollowSetting) events.FollowSettings {
	switch only {
	case skeinv1.FollowSetting_FOLLOW_SETTING_FAVORITE:
		return events.SettingFavorite
	case skeinv1.FollowSetting_FOLLOW_SETTING_NOTIFY:
		return events.SettingNotify
	default:
		return 0
	}
}

// userEntries returns entries of lists of blocked or muted users as answers have them.
func userEntries(entries []graph.Entry) []*skeinv1.UserEntry {
	list := make([]*skeinv1.UserEntry, len(entries))
	times := call.NewTimes(len(entries))
	for i, e := range entries {
		list[i] = &skeinv1.UserEntry{UserId: e.User, Time: times.Next(e.Since)}
		if e.Until != 0 {
			list[i].Until = timestamppb.New(e.Until.Time())
		}
	}
	return list
}
