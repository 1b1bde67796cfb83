package counters

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/events"
)

// maxReactionWeights is how many kinds of reactions may add heat.
const maxReactionWeights = 64

// parseReactionWeights parses weights such as "like=4,save=3". The result is by
// [events.Event.Reaction].
func parseReactionWeights(text string) (map[string]uint32, error) {
	weights := map[string]uint32{}
	if text == "" {
		return weights, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(part, "=")
		reaction := events.ReactionOf(name)
		weight, err := strconv.ParseUint(number, 10, 32)
		_, isRepeated := weights[reaction]

		switch {
		case err != nil || name == "" || !events.IsReaction(reaction):
			return nil, fmt.Errorf("counters: the weight of a reaction is %q, not KIND=N with a kind of a-z, 0-9 and _, such as like=4", part)
		case events.IsPrivateReaction(reaction):
			return nil, fmt.Errorf("counters: the kind %s is private, so it cannot add heat", name)
		case isRepeated:
			return nil, fmt.Errorf("counters: the kind %s has two weights", name)
		}
		weights[reaction] = uint32(weight)
	}
	if len(weights) > maxReactionWeights {
		return nil, fmt.Errorf("counters: %d kinds of reactions have weights: at most %d", len(weights), maxReactionWeights)
	}
	return weights, nil
}

// formatReactionWeights returns the weights in the form that parseReactionWeights reads, sorted by
// name and without those of 0. Settings that mean the same have the same form, so they have the
// same fingerprint.
func formatReactionWeights(weights map[string]uint32) string {
	var parts []string
	for reaction, weight := range maps.All(weights) {
		if weight != 0 {
			parts = append(parts, events.ReactionName(reaction)+"="+strconv.FormatUint(uint64(weight), 10))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
