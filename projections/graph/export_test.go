package graph

import "github.com/skein-feed/skein/projections"

// OutTags returns the tags of the rows of [NewOut].
func OutTags() []projections.Tag {
	return []projections.Tag{tagEdge, tagBoardEdge, tagRegion, tagTombstone, tagBoardDeletion, tagBoardRegion}
}
