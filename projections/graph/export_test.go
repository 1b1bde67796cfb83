package graph

import "github.com/skein-feed/skein/projections"

// OutEndTags returns the tags of the rows of [NewOutEnds].
func OutEndTags() []projections.Tag {
	return []projections.Tag{
		tagOutEdge, tagOutBoardEdge, tagRegion, tagTombstone, tagBoardDeletion, tagBoardRegion,
		tagTimedMutes, tagFavorites, tagNotifying,
	}
}
