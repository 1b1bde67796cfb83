package model_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/model"
)

// parseTime reads the time of a scenario: a number of microseconds, or a date in UTC.
func parseTime(word string) (events.Micros, error) {
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
		return events.Micros(n), nil
	}
	layout := time.DateOnly
	if strings.Contains(word, "T") {
		layout = "2006-01-02T15:04:05"
	}
	t, err := time.Parse(layout, word)
	return events.Micros(t.UnixMicro()), err
}

// parseItems parses a list of items: "i,k1..k3" is i, k1, k2, k3.
func parseItems(words string) (items []string) {
	for word := range strings.SplitSeq(words, ",") {
		first, last, ok := strings.Cut(word, "..")
		if !ok {
			items = append(items, word)
			continue
		}
		name := strings.TrimRight(first, "0123456789")
		from, _ := strconv.Atoi(strings.TrimPrefix(first, name))
		to, _ := strconv.Atoi(strings.TrimPrefix(last, name))
		for n := from; n <= to; n++ {
			items = append(items, name+strconv.Itoa(n))
		}
	}
	return items
}

// answerSeenQuestion answers the questions about plays, serves and counts. The answer to "played ann
// 4 2024-05-01" has the items that ann played in the 4 months up to that date, by id. A long run of
// numbered items is formatted by its ends.
func answerSeenQuestion(history []events.Event, q []string) (words string, ok bool, err error) {
	g := model.New(history)
	last := q[len(q)-1]
	owner, board, isBoard := strings.Cut(last, "/")
	board = strings.TrimPrefix(board, "-")
	switch q[0] {
	case "played":
		window, err := strconv.Atoi(q[2])
		if err != nil {
			return "", true, err
		}
		now, err := parseTime(last)
		if err != nil {
			return "", true, err
		}
		var items []string
		for item := range g.Played(q[1], now, window) {
			items = append(items, item)
		}
		slices.SortFunc(items, events.CompareIDs)
		return formatItems(items), true, nil
	case "hidden":
		var list []string
		for _, h := range g.Hidden(last) {
			list = append(list, fmt.Sprintf("%s %d", h.Item, h.Since))
		}
		return cmp.Or(strings.Join(list, ", "), "-"), true, nil
	case "served":
		return formatItems(g.Served(last)), true, nil
	case "item":
		return fmt.Sprintf("%+v", g.ItemCounts(last)), true, nil
	case "plays-by":
		return fmt.Sprint(g.PlaysBy(last)), true, nil
	case "pin-count":
		if isBoard {
			return fmt.Sprint(len(g.BoardPins(owner, board))), true, nil
		}
		return fmt.Sprint(len(g.Pins(owner))), true, nil
	case "top":
		var scope model.Scope
		if len(q) > 1 {
			scope.Owner = owner
		}
		if isBoard {
			scope.Board = &board
		}
		var list []string
		for _, h := range g.Top(scope, model.Heats(history, scenarioHeat)) {
			list = append(list, h.Item)
		}
		return formatItems(list), true, nil
	case "items":
		return strings.Join(g.Items(), " "), true, nil
	}
	return "", false, nil
}

// formatItems formats a list of items. A long rising run of numbered items is formatted by its
// ends.
func formatItems(items []string) string {
	var words []string
	for len(items) > 0 {
		name := strings.TrimRight(items[0], "0123456789")
		first, err := strconv.Atoi(strings.TrimPrefix(items[0], name))
		n := 1
		for err == nil && n < len(items) && items[n] == name+strconv.Itoa(first+n) {
			n++
		}
		if n < 4 {
			n = 1
			words = append(words, items[0])
		} else {
			words = append(words, items[0]+".."+items[n-1])
		}
		items = items[n:]
	}
	return cmp.Or(strings.Join(words, ", "), "-")
}
