package stores

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/notifications"
)

// notificationsRedis is a Redis server that keeps notifications as a product would. Scores are
// times in microseconds.
//
//	n:r:USER   sorted set of the reactions to the pins of a user: "pin actor kind"
//	n:p:USER   sorted set of the re-pins of the pins of a user: "pin actor repin"
//	r:USER     sorted set of the followers of a user
//	n:m:USER   hash of the user's markers: seen, read, and the ids of groups
//	l:USER     set of the living pins of a user
//	m:USER     set of the users whom a user mutes
//	b:USER     set of the users whom a block separates from a user
type notificationsRedis struct{ *programs.Redis }

// notificationsKept is how many notifications of each kind a user keeps: as many as in skein by
// default.
const notificationsKept = 1000

func notificationMarkersKey(user string) string { return "n:m:" + user }
func livingPinsKey(user string) string          { return "l:" + user }
func mutedKey(user string) string               { return "m:" + user }
func blockedKey(user string) string             { return "b:" + user }

// notificationKinds are the kinds of notifications, each of which has a list.
var notificationKinds = [...]notifications.Kind{notifications.Followed, notifications.Reacted, notifications.Repinned}

// notificationsKey returns the key of the list of a kind of notifications.
func notificationsKey(kind notifications.Kind, user string) string {
	switch kind {
	case notifications.Followed:
		return programs.FollowersKey(user)
	case notifications.Repinned:
		return "n:p:" + user
	default:
		return "n:r:" + user
	}
}

// member returns the member that stands for a notification in its list.
func (n *listedNotification) member() string {
	if n.kind == notifications.Followed {
		return n.actor
	}
	return n.pin + " " + n.actor + " " + n.detail
}

// parseListed parses an element of a list.
func parseListed(kind notifications.Kind, z *redis.Z) (n listedNotification, err error) {
	member, _ := z.Member.(string) // go-redis returns no other type
	n = listedNotification{kind: kind, at: events.Micros(z.Score)}
	if kind == notifications.Followed {
		n.actor = member
		return n, nil
	}
	pin, rest, found := strings.Cut(member, " ")
	actor, detail, foundDetail := strings.Cut(rest, " ")
	if !found || !foundDetail {
		return n, fmt.Errorf("redis has a notification %q, want a pin, an actor and a detail", member)
	}
	n.pin, n.actor, n.detail = pin, actor, detail
	return n, nil
}

// appendNotification appends the two writes of a notification: it begins unless it is there
// already, and the oldest are dropped.
func appendNotification(dst []byte, n notification) []byte {
	listed := n.asListed()
	key := notificationsKey(n.kind, workload.UserID(n.recipient))
	dst = programs.AppendCommand(dst, "ZADD", key, "NX", strconv.FormatInt(int64(n.at), 10), listed.member())
	return programs.AppendCommand(dst, "ZREMRANGEBYRANK", key, "0", strconv.Itoa(-notificationsKept-1))
}

// readList returns all notifications of a kind, newest first.
func (s notificationsRedis) readList(ctx context.Context, user string, kind notifications.Kind) ([]listedNotification, error) {
	rows, err := s.Client.ZRevRangeWithScores(ctx, notificationsKey(kind, user), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	return appendListed(nil, kind, rows)
}

// appendListed appends the notifications of a list of Redis.
func appendListed(list []listedNotification, kind notifications.Kind, rows []redis.Z) ([]listedNotification, error) {
	for i := range rows {
		n, err := parseListed(kind, &rows[i])
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// load writes what the users of a class received, and everything that decides what they see of it.
func (s notificationsRedis) load(ctx context.Context, c *notifiedClass) error {
	for _, user := range c.users {
		id := workload.UserID(user)
		pipe := s.Client.Pipeline()
		for pin := range uint32(pinsPerRecipient) {
			if number := user*pinsPerRecipient + pin; !isDeletedPin(number) {
				pipe.SAdd(ctx, livingPinsKey(id), pinID(number))
			}
		}
		for _, n := range c.notificationsOf(user) {
			actor := workload.UserID(n.actor)
			if isMuted(n.actor) {
				pipe.SAdd(ctx, mutedKey(id), actor)
			}
			if isBlocked(n.actor) {
				pipe.SAdd(ctx, blockedKey(id), actor)
			}
			if n.kind == notifications.Repinned && !isDeletedRepin(n.repin) {
				pipe.SAdd(ctx, livingPinsKey(actor), pinID(n.repin))
			}
			if n.kind == notifications.Followed && isBlocked(n.actor) {
				continue // the block has ended the follow
			}
			listed := n.asListed()
			pipe.ZAdd(ctx, notificationsKey(n.kind, id), redis.Z{Score: float64(n.at), Member: listed.member()})
		}
		read, group := c.readMarkers(user)
		pipe.HSet(ctx, notificationMarkersKey(id),
			"seen", int64(monthStart(0)-day), "read", int64(read), group.ID, int64(group.Newest))
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("loading redis: %w", err)
		}
	}
	return nil
}

// firstNotifications is how many notifications of each kind a page reads at first. Then it reads
// all others.
const firstNotifications = 300

// readPage returns the first page of the groups of a user, and whether there are more groups.
func (s notificationsRedis) readPage(ctx context.Context, user string) (page []notificationGroup, more bool, err error) {
	var (
		markers *redis.MapStringStringCmd
		groups  []notificationGroup
		// pending are notifications of days that were not read completely, so that their groups are
		// not known.
		pending []listedNotification
	)
	for from, to := 0, firstNotifications; ; from, to = to, notificationsKept {
		pipe := s.Client.Pipeline()
		if from == 0 {
			markers = pipe.HGetAll(ctx, notificationMarkersKey(user))
		}
		var ranges [len(notificationKinds)]*redis.ZSliceCmd
		for i, kind := range notificationKinds {
			ranges[i] = pipe.ZRevRangeWithScores(ctx, notificationsKey(kind, user), int64(from), int64(to-1))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, false, err
		}

		// A list that has more notifications may have some of the day of the last one that was
		// read.
		incompleteDay := events.Micros(-1)
		for i, r := range ranges {
			rows := r.Val()
			if pending, err = appendListed(pending, notificationKinds[i], rows); err != nil {
				return nil, false, err
			}
			if len(rows) == to-from && to < notificationsKept {
				incompleteDay = max(incompleteDay, events.Micros(rows[len(rows)-1].Score)/day)
			}
		}
		var complete, incomplete []listedNotification
		for _, n := range pending {
			if n.at/day > incompleteDay {
				complete = append(complete, n)
			} else {
				incomplete = append(incomplete, n)
			}
		}
		pending = incomplete

		if complete, err = s.filterVisible(ctx, user, complete); err != nil {
			return nil, false, err
		}
		groups = append(groups, groupNotifications(complete)...)
		if len(groups) > feedPageSize || incompleteDay < 0 {
			break
		}
	}

	more = len(groups) > feedPageSize
	page = groups[:min(len(groups), feedPageSize)]
	return page, more, setUnread(page, markers.Val())
}

// setUnread sets which groups are unread, from the markers of the user.
func setUnread(page []notificationGroup, markers map[string]string) error {
	marker := func(name string) (int64, error) {
		text, ok := markers[name]
		if !ok {
			return 0, nil
		}
		return strconv.ParseInt(text, 10, 64)
	}
	read, err := marker("read")
	if err != nil {
		return err
	}
	for i := range page {
		readGroup, err := marker(page[i].ID)
		if err != nil {
			return err
		}
		page[i].Unread = int64(page[i].Newest) > max(read, readGroup)
	}
	return nil
}

// countUnseen returns how many groups of a user have notifications after the marker seen, at most
// maxBadge, and whether there are more.
func (s notificationsRedis) countUnseen(ctx context.Context, user string) (count int, more bool, err error) {
	seen, err := s.Client.HGet(ctx, notificationMarkersKey(user), "seen").Result()
	if errors.Is(err, redis.Nil) {
		seen, err = "0", nil
	}
	if err != nil {
		return 0, false, err
	}

	pipe := s.Client.Pipeline()
	unseen := &redis.ZRangeBy{Min: "(" + seen, Max: "+inf", Count: notificationsKept}
	var ranges [len(notificationKinds)]*redis.ZSliceCmd
	for i, kind := range notificationKinds {
		ranges[i] = pipe.ZRevRangeByScoreWithScores(ctx, notificationsKey(kind, user), unseen)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, false, err
	}
	var list []listedNotification
	for i, r := range ranges {
		if list, err = appendListed(list, notificationKinds[i], r.Val()); err != nil {
			return 0, false, err
		}
	}

	if list, err = s.filterVisible(ctx, user, list); err != nil {
		return 0, false, err
	}
	count = len(groupNotifications(list))
	return min(count, maxBadge), count > maxBadge, nil
}

// filterVisible returns the notifications that a user may see. It asks with one pipeline which pins
// and re-pins live, and which actors the user mutes or a block separates from the user.
func (s notificationsRedis) filterVisible(ctx context.Context, user string, list []listedNotification) ([]listedNotification, error) {
	if len(list) == 0 {
		return nil, nil
	}

	pins := make(map[string]bool)
	actors := make(map[string]bool)
	pipe := s.Client.Pipeline()
	repins := make([]*redis.BoolCmd, len(list))
	for i := range list {
		n := &list[i]
		actors[n.actor] = true
		if n.kind != notifications.Followed {
			pins[n.pin] = true
		}
		if n.kind == notifications.Repinned {
			repins[i] = pipe.SIsMember(ctx, livingPinsKey(n.actor), n.detail)
		}
	}
	livingPins := askMembers(ctx, pipe, livingPinsKey(user), pins)
	muted := askMembers(ctx, pipe, mutedKey(user), actors)
	blocked := askMembers(ctx, pipe, blockedKey(user), actors)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}

	isLiving, isMutedActor, isBlockedActor := livingPins(), muted(), blocked()
	visible := list[:0]
	for i, n := range list {
		switch {
		case isMutedActor[n.actor], isBlockedActor[n.actor]:
		case n.kind != notifications.Followed && !isLiving[n.pin]:
		case n.kind == notifications.Repinned && !repins[i].Val():
		default:
			visible = append(visible, n)
		}
	}
	return visible, nil
}

// askMembers asks which ids are members of a set. When the pipeline was executed, members returns
// those that are.
func askMembers(ctx context.Context, pipe redis.Pipeliner, key string, ids map[string]bool) (members func() map[string]bool) {
	if len(ids) == 0 {
		return func() map[string]bool { return nil } // SMISMEMBER refuses to be asked about nothing
	}
	asked := make([]any, 0, len(ids))
	for id := range ids {
		asked = append(asked, id)
	}
	answer := pipe.SMIsMember(ctx, key, asked...)
	return func() map[string]bool {
		found := make(map[string]bool)
		for i, isMember := range answer.Val() {
			if id, ok := asked[i].(string); ok && isMember {
				found[id] = true
			}
		}
		return found
	}
}
