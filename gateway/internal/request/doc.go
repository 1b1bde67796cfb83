// Package request makes messages of bytes and says what is wrong with them.
//
//	bytes ──▶ lists are counted ──▶ decoded ([Codecs]: binary, JSON) ──▶ [Rules] of the protos, [Checker] for ids ──▶ the method
//	              │                      │                                        │
//	              ▼                      ▼                                        ▼
//	           apierror.Failure, which names the field, its limit, and what would be right
//
// Lists are counted before anything is decoded, so a small packed body cannot become a large message. The messages that a service
// decodes most often are decoded by hand ([UnmarshalProto]), which the tests hold against the library.
package request
