--------------------------- MODULE AwaShardedPrune ---------------------------
(***************************************************************************)
(* The queue ring's prune with the failed-retention floor (ADR-026,        *)
(* ADR-032), small enough to visit every state of it.                      *)
(*                                                                         *)
(* A job's row is appended to the ready child of the current slot and      *)
(* never touched again.  What happens to it is told by other rows: claim   *)
(* evidence, an open attempt, a terminal row.  When every row of a sealed  *)
(* slot is dead, prune truncates the whole slot, and first carries the     *)
(* failed rows that are still inside the floor into the current slot, wide,*)
(* that is with a body of their own.                                       *)
(*                                                                         *)
(* Two lanes draw their positions from counters of their own, so positions *)
(* collide all the time.  The shipped engine has one sequence for all      *)
(* lanes; a rule that is right here does not lean on that.                 *)
(*                                                                         *)
(* Transactions are one action each, because they commit at one instant and*)
(* touch nothing that another may change under them.  Two are not: a       *)
(* producer, which may read the ring's cursor long before it appends; and  *)
(* prune, whose steps others may fall between.  What prune has written but *)
(* not committed lives in `tx', where nobody else can see it; a crash      *)
(* forgets `tx' and nothing more.                                          *)
(*                                                                         *)
(* `Bug' names one mistake to switch on.  Every mistake has a .cfg of its  *)
(* own, in which TLC must find the invariant that the mistake breaks: an   *)
(* invariant that never fails proves nothing.                              *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    JobCount,       \* jobs 1..JobCount, in two lanes by turns
    SlotCount,      \* slots of the ring; 3 is the least that lets a rotation fall into a prune
    LastPosition,   \* positions a lane may hand out: bounds the retries
    LastGeneration, \* bounds the rotations
    LastInstant,    \* where the clock stops
    Floor,          \* failed_retention; 0 switches the floor off
    OldBinaries,    \* whether a binary that knows no floor prunes too (R032-07)
    Bug             \* "none", or the mistake of a Broken twin

VARIABLES
    now,        \* the database's clock
    ring,       \* queue_ring_state: the current segment
    slots,      \* queue_ring_slots: what each slot is and which generation it was opened as
    nextPos,    \* lane -> the next position
    producer,   \* job -> where its producer stands
    ready,      \* ready_entries
    taken,      \* claim evidence and tombstones: which positions of a slot are spent
    attempts,   \* attempts under way, as the ready rows they were claimed from
    done,       \* terminal rows: done_entries, and compact completions
    delta,      \* slot -> sum of the pending terminal-count deltas
    live,       \* slot -> queue_terminal_live_counts
    rolled,     \* queue_terminal_rollups
    tx,         \* the prune transaction
    facts,      \* ghost: terminal facts ever made, less those that a retry took back
    gone        \* ghost: terminal facts that a prune dropped

vars == <<now, ring, slots, nextPos, producer, ready, taken, attempts, done,
          delta, live, rolled, tx, facts, gone>>

Jobs  == 1..JobCount
Lanes == 0..1
Slots == 0..(SlotCount - 1)
Lane(job) == job % 2

-----------------------------------------------------------------------------
(* Rows.  A segment is a slot and the generation it was opened as; a row    *)
(* bears the segment its writer meant, also where the slot has moved on.    *)

ReadyRow(job, segment) ==
    [job |-> job, lane |-> Lane(job), pos |-> nextPos[Lane(job)],
     slot |-> segment.slot, gen |-> segment.gen]

\* Evidence is filed under the slot of the row it speaks of: they are truncated together.
Spent(r) == [lane |-> r.lane, pos |-> r.pos, slot |-> r.slot]
Pending(r) == r \in ready /\ Spent(r) \notin taken

NoBody == 0     \* the body columns of a narrow row

\* The instant matters for failed rows alone; elsewhere it would only multiply the states.
DoneRow(r, state, body) ==
    [job |-> r.job, lane |-> r.lane, pos |-> r.pos, slot |-> r.slot, gen |-> r.gen,
     state |-> state, at |-> IF state = "failed" THEN now ELSE 0, body |-> body]

Wide(d) == d.body # NoBody

\* Successful completions are compact: counted from where they lie, without a delta (R026-12).
Compact(d) == d.state = "completed"

BodyOf(d) == {r \in ready : /\ r.slot = d.slot /\ r.gen = d.gen /\ r.pos = d.pos
                            /\ (r.lane = d.lane \/ Bug = "hydrate-ignores-shard")}

\* The job whose body a read of the row would show (a job is its own body here).
Hydrated(d) == IF Wide(d) THEN d.body ELSE (CHOOSE r \in BodyOf(d) : TRUE).job

-----------------------------------------------------------------------------
(* Prune's rules.                                                           *)

Idle   == [step |-> "idle"]
Unread == [slot |-> -1, gen |-> 0]

\* Prune keeps writers out of the slot it works on from the segment lock to its end.
Locked(slot) == tx.step \in {"locked", "proved", "carried", "folded", "truncated"} /\ tx.victim = slot
RingLocked   == tx.step \notin {"idle", "begun"}

\* R026-24, DESIGN law 6: every row of the child is spent, whatever generation it bears,
\* and no attempt on one of them is under way.
SpentAt(r, slot) ==
    IF Bug = "gate-ignores-shard" THEN \E e \in taken : e.slot = slot /\ e.pos = r.pos
                                  ELSE Spent(r) \in taken
InGateOf(r, slot) ==
    r.slot = slot /\ (Bug = "gate-by-generation" => r.gen = slots[slot].gen)
AllDead(slot) == /\ \A r \in ready : InGateOf(r, slot) => SpentAt(r, slot)
                 /\ \A r \in attempts : ~InGateOf(r, slot)

\* R032-02: the floor, boundary included; `instant' is the clock at the transaction's start.
InsideFloor(d, instant) == d.state = "failed" /\ Floor > 0 /\ d.at >= instant - Floor

\* The same rule as prune applies it.
ToCarry(d) ==
    CASE Bug = "forgotten-carry"   -> FALSE
      [] Bug = "cancelled-carried" -> d.state # "completed" /\ Floor > 0 /\ d.at >= tx.now - Floor
      [] Bug = "cutoff-exclusive"  -> d.state = "failed" /\ Floor > 0 /\ d.at > tx.now - Floor
      [] OTHER                     -> InsideFloor(d, tx.now)

Carried(d) == [d EXCEPT !.slot = tx.dest.slot, !.gen = tx.dest.gen,
                        !.body = IF Bug = "carried-narrow" THEN d.body ELSE Hydrated(d)]

InVictim == {d \in done : d.slot = tx.victim}

-----------------------------------------------------------------------------
Init ==
    /\ now = 0
    /\ ring = [slot |-> 0, gen |-> 1]
    /\ slots = [s \in Slots |-> IF s = 0 THEN [is |-> "open", gen |-> 1]
                                         ELSE [is |-> "pruned", gen |-> 0]]
    /\ nextPos = [l \in Lanes |-> 1]
    /\ producer = [j \in Jobs |-> [step |-> "absent"]]
    /\ ready = {} /\ taken = {} /\ attempts = {} /\ done = {}
    /\ delta = [s \in Slots |-> 0] /\ live = [s \in Slots |-> 0]
    /\ rolled = [other |-> 0, failed |-> 0]
    /\ tx = Idle
    /\ facts = 0 /\ gone = {}

Tick ==
    /\ now < LastInstant
    /\ now' = now + 1
    /\ UNCHANGED <<ring, slots, nextPos, producer, ready, taken, attempts, done,
                   delta, live, rolled, tx, facts, gone>>

(* Producers.  The cursor may be stale by the time of the append: legal.    *)

ReadCursor(job) ==
    /\ producer[job].step = "absent"
    /\ producer' = [producer EXCEPT ![job] = [step |-> "reading", slot |-> ring.slot, gen |-> ring.gen]]
    /\ UNCHANGED <<now, ring, slots, nextPos, ready, taken, attempts, done,
                   delta, live, rolled, tx, facts, gone>>

AppendReady(job) ==
    /\ producer[job].step = "reading"
    /\ nextPos[Lane(job)] <= LastPosition
    /\ ~Locked(producer[job].slot)
    /\ ready' = ready \union {ReadyRow(job, producer[job])}
    /\ nextPos' = [nextPos EXCEPT ![Lane(job)] = @ + 1]
    /\ producer' = [producer EXCEPT ![job] = [step |-> "appended"]]
    /\ UNCHANGED <<now, ring, slots, taken, attempts, done, delta, live, rolled, tx, facts, gone>>

(* The life of a job.                                                       *)

ClaimReady ==
    /\ \E r \in ready : /\ Pending(r) /\ ~Locked(r.slot)
                        /\ taken' = taken \union {Spent(r)}
                        /\ attempts' = attempts \union {r}
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, done,
                   delta, live, rolled, tx, facts, gone>>

\* An attempt's row is closed in the segment of its ready row.
CompleteCompact ==
    /\ \E r \in attempts : /\ ~Locked(r.slot)
                       /\ attempts' = attempts \ {r}
                       /\ done' = done \union {DoneRow(r, "completed", NoBody)}
    /\ facts' = facts + 1
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken,
                   delta, live, rolled, tx, gone>>

FailAttempt ==
    /\ \E r \in attempts : /\ ~Locked(r.slot)
                       /\ attempts' = attempts \ {r}
                       /\ done' = done \union {DoneRow(r, "failed", NoBody)}
                       /\ delta' = [delta EXCEPT ![r.slot] = @ + 1]
    /\ facts' = facts + 1
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, live, rolled, tx, gone>>

\* R026-18: an unclaimed job is tombstoned, and its row is born wide.
CancelReady ==
    /\ \E r \in ready : /\ Pending(r) /\ ~Locked(r.slot)
                        /\ taken' = taken \union {Spent(r)}
                        /\ done' = done \union {DoneRow(r, "cancelled", r.job)}
                        /\ delta' = [delta EXCEPT ![r.slot] = @ + 1]
    /\ facts' = facts + 1
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, attempts, live, rolled, tx, gone>>

\* R026-19, R026-22: the terminal row goes and takes its count with it; the job gets a fresh
\* ready row, and the old one stays as dead as it was.
RetryReady ==
    /\ \E d \in done :
          /\ d.state = "failed" /\ ~Locked(d.slot)
          /\ nextPos[Lane(d.job)] <= LastPosition
          /\ done' = done \ {d}
          /\ delta' = [delta EXCEPT ![d.slot] = IF Bug = "retry-keeps-count" THEN @ ELSE @ - 1]
          /\ ready' = ready \union {ReadyRow(d.job, ring)}
          /\ nextPos' = [nextPos EXCEPT ![Lane(d.job)] = @ + 1]
    /\ facts' = facts - 1
    /\ UNCHANGED <<now, ring, slots, producer, taken, attempts, live, rolled, tx, gone>>

(* Maintenance beside prune.                                                *)

\* The next pruned slot round the ring: rotation steps over what it can't use (law 7).
Ahead(s) == (s - ring.slot + SlotCount) % SlotCount
IsNextPruned(s) ==
    /\ slots[s].is = "pruned"
    /\ \A t \in Slots : slots[t].is = "pruned" => Ahead(s) <= Ahead(t)

Rotate(s) ==
    /\ IsNextPruned(s)
    /\ ring.gen < LastGeneration
    /\ RingLocked => Bug = "rotate-without-ring-lock"     \* R032-13
    /\ ring' = [slot |-> s, gen |-> ring.gen + 1]
    /\ slots' = [slots EXCEPT ![ring.slot].is = "sealed",
                              ![s] = [is |-> "open", gen |-> ring.gen + 1]]
    /\ UNCHANGED <<now, nextPos, producer, ready, taken, attempts, done,
                   delta, live, rolled, tx, facts, gone>>

\* R026-24: pending deltas of a sealed slot become live counts; fold and truncate commit together.
FoldDeltas(s) ==
    /\ slots[s].is = "sealed" /\ ~Locked(s) /\ AllDead(s)
    /\ delta[s] # 0
    /\ live' = [live EXCEPT ![s] = @ + delta[s]]
    /\ delta' = [delta EXCEPT ![s] = 0]
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, attempts, done,
                   rolled, tx, facts, gone>>

-----------------------------------------------------------------------------
(* Prune, one step at a time.                                               *)

\* BEGIN: from here now() stands still.  What is read of the ring here is only a hint.
ObserveRing ==
    /\ tx = Idle
    /\ \E s \in Slots : slots[s].is = "sealed"
    /\ tx' = [step |-> "begun", now |-> now,
              dest |-> IF Bug = "destination-before-lock" THEN ring ELSE Unread]
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, attempts, done,
                   delta, live, rolled, facts, gone>>

\* R032-04, R032-13: under the ring's lock, and held to the end, victim and destination stand
\* still.  Any sealed slot will do: prune tries the next where one is held.
LockRing(victim) ==
    /\ tx.step = "begun"
    /\ slots[victim].is = "sealed"
    /\ tx' = [step |-> "ring", now |-> tx.now, victim |-> victim,
              dest |-> IF Bug = "destination-before-lock" THEN tx.dest ELSE ring]
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, attempts, done,
                   delta, live, rolled, facts, gone>>

\* Whoever holds a lock on the children is out; whoever comes waits.
LockSegment ==
    /\ tx.step = IF Bug = "gate-before-lock" THEN "probed" ELSE "ring"
    /\ tx' = [tx EXCEPT !.step = IF Bug = "gate-before-lock" THEN "proved" ELSE "locked"]
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, attempts, done,
                   delta, live, rolled, facts, gone>>

\* Where the gate holds the slot back, the transaction ends as in Crash.
ProbeGates ==
    /\ tx.step = IF Bug = "gate-before-lock" THEN "ring" ELSE "locked"
    /\ AllDead(tx.victim)
    /\ tx' = [tx EXCEPT !.step = IF Bug = "gate-before-lock" THEN "probed" ELSE "proved"]
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, attempts, done,
                   delta, live, rolled, facts, gone>>

\* R032-03, R032-05: the row goes wide, and its delta goes with it.
CarryForward ==
    /\ tx.step = "proved"
    /\ LET rows == {Carried(d) : d \in {x \in InVictim : ToCarry(x)}}
       IN  /\ tx' = [step |-> "carried", now |-> tx.now, victim |-> tx.victim,
                     dest |-> tx.dest, rows |-> rows,
                     delta |-> IF Bug = "carry-forgets-delta" THEN 0 ELSE Cardinality(rows)]
           /\ done' = IF Bug = "carry-commits-alone" THEN done \union rows ELSE done
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, attempts,
                   delta, live, rolled, facts, gone>>

\* R032-06: what is dropped is counted by a scan of its own, split by what it was.
FoldRollup ==
    /\ tx.step = "carried"
    /\ LET dropped == {d \in InVictim : ~ToCarry(d) \/ Bug = "fold-counts-carried"}
           failed  == {d \in dropped : d.state = "failed"}
       IN  tx' = [step |-> "folded", now |-> tx.now, victim |-> tx.victim, dest |-> tx.dest,
                  rows |-> tx.rows, delta |-> tx.delta,
                  other |-> Cardinality(dropped \ failed), failed |-> Cardinality(failed)]
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, attempts, done,
                   delta, live, rolled, facts, gone>>

Truncate ==
    /\ tx.step = "folded"
    /\ tx' = [tx EXCEPT !.step = "truncated"]
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, attempts, done,
                   delta, live, rolled, facts, gone>>

\* A TRUNCATE empties the child of all that lies in it, also of what was just carried there.
Emptied(rows, slot) == {x \in rows : x.slot # slot}

\* Ghost: the facts of `slot' that no terminal row tells of any more.
Dropped(slot, after, instant) ==
    {[job |-> d.job, failed |-> d.state = "failed", inside |-> InsideFloor(d, instant)] :
        d \in {x \in done : x.slot = slot /\ x.job \notin {y.job : y \in after}}}

MarkPruned ==   \* and COMMIT: all of tx at one instant, or none of it (R032-12)
    /\ tx.step = "truncated"
    /\ LET v     == tx.victim
           after == Emptied(done \union tx.rows, v)
       IN  /\ done'  = after
           /\ ready' = Emptied(ready, v)
           /\ taken' = Emptied(taken, v)
           /\ delta' = [[delta EXCEPT ![tx.dest.slot] = @ + tx.delta] EXCEPT ![v] = 0]
           /\ live'  = [live EXCEPT ![v] = 0]
           /\ rolled' = IF Bug = "rollup-overwrites"
                        THEN [other |-> tx.other, failed |-> tx.failed]
                        ELSE [other |-> rolled.other + tx.other, failed |-> rolled.failed + tx.failed]
           /\ slots' = [slots EXCEPT ![v].is = "pruned"]
           /\ gone'  = gone \union Dropped(v, after, tx.now)
           /\ tx' = Idle
    /\ UNCHANGED <<now, ring, nextPos, producer, attempts, facts>>

\* A killed backend, a lock refused, a gate that holds the slot back: rolled back at any step.
Crash ==
    /\ tx # Idle
    /\ tx' = Idle
    /\ UNCHANGED <<now, ring, slots, nextPos, producer, ready, taken, attempts, done,
                   delta, live, rolled, facts, gone>>

\* R032-07: a binary from before the floor drops all and folds all into one column.  It takes the
\* same locks, so that one action tells all of it.
OldPrune(v) ==
    /\ OldBinaries
    /\ ~RingLocked /\ slots[v].is = "sealed" /\ AllDead(v)
    /\ done'  = Emptied(done, v)
    /\ ready' = Emptied(ready, v)
    /\ taken' = Emptied(taken, v)
    /\ delta' = [delta EXCEPT ![v] = 0]
    /\ live'  = [live EXCEPT ![v] = 0]
    /\ rolled' = [rolled EXCEPT !.other = @ + Cardinality({d \in done : d.slot = v})]
    /\ slots' = [slots EXCEPT ![v].is = "pruned"]
    /\ gone'  = gone \union Dropped(v, done', now)
    /\ UNCHANGED <<now, ring, nextPos, producer, attempts, tx, facts>>

-----------------------------------------------------------------------------
Next ==
    \/ Tick
    \/ \E j \in Jobs : ReadCursor(j) \/ AppendReady(j)
    \/ ClaimReady \/ CompleteCompact \/ FailAttempt \/ CancelReady \/ RetryReady
    \/ \E s \in Slots : Rotate(s) \/ FoldDeltas(s) \/ LockRing(s) \/ OldPrune(s)
    \/ ObserveRing \/ LockSegment \/ ProbeGates \/ CarryForward \/ FoldRollup
    \/ Truncate \/ MarkPruned \/ Crash

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold in every state.                                           *)

Sum(f) == LET RECURSIVE Up(_)
              Up(S) == IF S = {} THEN 0 ELSE LET s == CHOOSE x \in S : TRUE IN f[s] + Up(S \ {s})
          IN  Up(Slots)

\* An enqueued job is in exactly one place: never in none, never in two.
Places(job) ==
    Cardinality({r \in ready : r.job = job /\ Pending(r)}) + Cardinality({r \in attempts : r.job = job})
    + Cardinality({d \in done : d.job = job}) + Cardinality({g \in gone : g.job = job})
EachJobInOnePlace == \A j \in Jobs : producer[j].step = "appended" => Places(j) = 1

\* R026-23, in every state and not only when maintenance has caught up.
ExactCounts ==
    Sum(live) + Sum(delta) + Cardinality({d \in done : Compact(d)}) + rolled.other + rolled.failed = facts

\* R026-26: what the trust marker says, slot by slot.
CountersMatchRows ==
    \A s \in Slots : live[s] + delta[s] = Cardinality({d \in done : d.slot = s /\ ~Compact(d)})

\* R032-06, R032-08: the split is right, too.
SplitIsExact == rolled.failed = Cardinality({g \in gone : g.failed})

\* R032-07: with older binaries about it undercounts failures, and errs in no other way.
SplitUndercountsOnly ==
    /\ rolled.failed <= Cardinality({g \in gone : g.failed})
    /\ rolled.failed + rolled.other = Cardinality(gone)

\* R032-02: nothing inside the floor is lost.
FailedInsideFloorSurvives == \A g \in gone : ~g.inside

\* R026-02: a narrow row has its body.
TerminalHasRetainedReadyBody == \A d \in done : ~Wide(d) => BodyOf(d) # {}

\* R032-03: a wide row needs no ready row, and its body is its own job's.
WideBodyIsItsOwn == \A d \in done : Wide(d) => d.body = d.job

\* ADR-026 where ADR-032 does not amend it: all but failed rows live and die with their ready row.
OnlyFailedIsCarried ==
    \A d \in done : d.state # "failed" => \E r \in ready : r.job = d.job /\ r.slot = d.slot /\ r.gen = d.gen

\* R032-13.
DestinationIsCurrent == RingLocked => tx.dest = ring

\* The ring itself: one current slot; and where prune works, it works on a sealed one.
RingIsSound ==
    /\ \A s \in Slots : slots[s].is = "open" <=> s = ring.slot
    /\ slots[ring.slot].gen = ring.gen
    /\ RingLocked => slots[tx.victim].is = "sealed"

(* What must hold of every step.                                            *)

\* R032-08.
PrunedFailedNeverFalls == [][rolled'.failed >= rolled.failed]_vars

\* R026-01, R026-20: a ready row leaves only with its whole slot.
ReadyLeavesBySlotOnly == [][\A r \in ready \ ready' : \A x \in ready' : x.slot # r.slot]_vars

-----------------------------------------------------------------------------
(* Witnesses: each must be *violated* by the good model, or else a pass says *)
(* less than it seems to.                                                    *)

CarriesFrom(wide) == tx.step = "carried" /\ \E d \in InVictim : d.state = "failed" /\ Wide(d) = wide /\ \E c \in tx.rows : c.job = d.job

NeverCarriesAgain == ~CarriesFrom(TRUE)
NeverRetriesCarried == ~(\E r \in ready : r.pos > 1 /\ Pending(r) /\ \A x \in ready : x.job = r.job => x = r)
NeverPastTheFloor == rolled.failed = 0
=============================================================================
