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

// pageRequest is what the requests of all lists have.
type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
	GetAtLeast() string
}

// page is one page of a list.
type page struct {
	entries  []graph.Entry
	next     string
	total    uint32
	position string
}

// ListIDOf names a list in page tokens.
func ListIDOf(l graph.List) pagetoken.ListID {
	return pagetoken.NewListID(byte(l.Kind), l.User, l.Board, l.Peer)
}

// page reads one page of a list, from a state that contains that of the page before.
func (s *Service) page(ctx context.Context, l graph.List, req pageRequest, x *call.Info) (p page, err error) {
	id := ListIDOf(l)
	cursor, since, err := s.Resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return p, err
	}
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return p, err
	}
	r, err := s.Open(ctx, x, least, since)
	if err != nil {
		return p, err
	}
	defer r.Close()
	if err := x.MakeLong(ctx, call.PageSize(req.GetPageSize())); err != nil {
		return p, err
	}
	var next graph.PageCursor
	err = views.RunUntilResolved(ctx, func() (err error) {
		p.entries, next, err = r.List(ctx, l, cursor, call.PageSize(req.GetPageSize()))
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
	if next != nil {
		p.next = s.Keys.Sign(pagetoken.Token{List: id, Position: r.Newest(), Cursor: next})
	}
	p.position = r.Position
	return p, nil
}

func followEntries(entries []graph.Entry) []*skeinv1.FollowEntry {
	out, made, times := make([]*skeinv1.FollowEntry, len(entries)), make([]skeinv1.FollowEntry, len(entries)),
		call.NewTimes(len(entries))
	for i, e := range entries {
		out[i] = &made[i]
		out[i].UserId, out[i].Kind, out[i].FollowTime = e.User, FollowKinds[e.Kind], times.Of(e.Since)
		out[i].Settings = FollowSettingsOf(e.Settings)
	}
	return out
}

func boardEntries(entries []graph.Entry) []*skeinv1.BoardEntry {
	out, times := make([]*skeinv1.BoardEntry, len(entries)), call.NewTimes(len(entries))
	for i, e := range entries {
		out[i] = &skeinv1.BoardEntry{
			Board: &skeinv1.Board{OwnerId: e.User, BoardId: e.Board}, Time: times.Of(e.Since), Title: e.Title,
		}
	}
	return out
}

// FollowSettingsOf returns settings as answers have them: nil if all are off.
func FollowSettingsOf(s events.FollowSettings) *skeinv1.FollowSettings {
	if s == 0 {
		return nil
	}
	return &skeinv1.FollowSettings{
		HideRepins: s.Has(events.SettingHideRepins), Notify: s.Has(events.SettingNotify), Favorite: s.Has(events.SettingFavorite),
	}
}

// SettingOf returns the setting by which a request chooses follows, or 0 if it chooses none.
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

func userEntries(entries []graph.Entry) []*skeinv1.UserEntry {
	out, times := make([]*skeinv1.UserEntry, len(entries)), call.NewTimes(len(entries))
	for i, e := range entries {
		out[i] = &skeinv1.UserEntry{UserId: e.User, Time: times.Of(e.Since)}
		if e.Until != 0 {
			out[i].Until = timestamppb.New(e.Until.Time())
		}
	}
	return out
}
