// Package request decodes and validates requests, and encodes answers.
//
//	bytes ──▶ lists are counted ──▶ decoded ([Codecs]: binary, JSON) ──▶ [Rules] of the protos, [Checker] for ids ──▶ the method
//	              │                      │                                        │
//	              ▼                      ▼                                        ▼
//	           apierror.Failure with the name of the field, its limit, and the valid form
//
// The lists of a request are counted before anything is decoded, so that a small compressed body
// cannot become a large message in memory. The most frequent messages are decoded and encoded by
// hand-written code ([UnmarshalProto], [AppendProto]). Tests compare its results with those of the
// protobuf library.
package request
