// Package service is one process of skein: the log, the stores that fold it, the gateway that answers from them, and what keeps all of
// it in repair. The commands serve and demo run it.
//
//	        archive ◀── archiver            auditor, snapshots, rebuilds: [maintenance]
//	            │           ▲                          │
//	            ▼           │                          ▼
//	clients ─▶ log ──────▶ hub ─────────────────▶ stores (each a projection)
//	   ▲        ▲                                      │
//	   │        │ publisher                            │ views
//	   └──── gateway ◀─────────────────────────────────┘
//
// [Open] opens from the log upwards, and says on the port meanwhile that the process starts ([OpenOn]). [Service.Run] owns every
// goroutine: calls end first, then what waits for the log, then the projections, which until then answer calls. [Service.Close] closes
// in reverse order.
//
// The parts look after one another through two things that all of them know: the disk, which is kept from becoming full (diskguard.go),
// and the plan of memory ([Memory]), by which what can grow is bounded.
package service
