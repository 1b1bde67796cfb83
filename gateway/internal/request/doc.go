// Package request decodes and validates requests, and encodes answers.
//
//	bytes ──▶ lists are counted ──▶ decoded ([Codecs]: binary, JSON) ──▶ [Rules] of the protos, [Checker] for ids ──▶ the method
//	              │                      │                                        │
//	              ▼                      ▼                                        ▼
//	           apierror.Failure with the name of the field, its limit, and the valid form
//
// The package counts the items of a request's lists before it decodes anything, so that a small
// compressed body cannot become a large message in memory. Hand-written code decodes and encodes
// the most frequent messages ([UnmarshalProto], [AppendProto]). Tests compare its results with
// those of the protobuf library.
package request
