--------------------------- MODULE AwaShardedPrune ---------------------------
(*
The queue ring's prune with the failed-retention floor (ADR-026, ADR-032), small enough to visit
every state of it.

A job's row is appended to the ready child of the open slot and never touched again. What becomes of
it is told by other rows: claim evidence, an open attempt, a terminal row. When every row of a sealed
slot is dead, prune truncates the slot whole; before that it carries the failed rows that are still
inside the floor into the open slot, wide, that is with a body of their own.

Two lanes draw positions from counters of their own, so positions collide all the time. The shipped
engine draws them from one sequence; a rule that is right here does not lean on that.

A transaction is one action, because it commits at one instant and touches nothing that another may
change under it. Two are not: a producer, which may read the ring's cursor long before it appends;
and prune, whose every step others may follow. What prune has written and not committed lies in `tx',
where nobody else can see it: a crash forgets `tx' and nothing more.

`Bug' switches one mistake on. Every mistake has a .cfg of its own in broken/, in which TLC must find
the invariant that the mistake breaks: an invariant that never fails proves nothing.
*)
EXTENDS Integers, FiniteSets

CONSTANTS
    JobCount,       \* jobs 1..JobCount, in two lanes by turns
    SlotCount,      \* slots of the ring; with 3 a rotation can fall into the middle of a prune
    LastPosition,   \* positions that a lane may hand out: bounds the retries
    LastGeneration, \* bounds the rotations
    LastInstant,    \* where the clock stops
    Floor,          \* failed_retention; 0 switches the floor off
    OldBinaries,    \* whether a binary that knows no floor prunes as well (R032-07)
    Bug             \* "none", or the mistake of a Broken twin

VARIABLES
    now,        \* the database's clock
    ring,       \* queue_ring_state: the open segment
    slots,      \* queue_ring_slots: the state of each slot, and the generation it was opened as
    nextPos,    \* lane -> its next position
    producer,   \* job -> where its producer stands
    ready,      \* ready_entries
    spent,      \* claim evidence and tombstones: the positions of a slot that nobody may claim
    attempts,   \* attempts under way, each as the ready row it was claimed from
    done,       \* terminal rows: done_entries and compact completions
    delta,      \* slot -> sum of its pending terminal-count deltas
    live,       \* slot -> its queue_terminal_live_counts
    rolled,     \* queue_terminal_rollups
    tx,         \* the prune transaction
    facts,      \* ghost: terminal facts ever made, less those that a retry took back
    gone        \* ghost: terminal facts that a prune dropped

jobVars   == <<nextPos, producer, ready, spent, attempts>>
countVars == <<delta, live, rolled>>
ringVars  == <<ring, slots>>
ghostVars == <<facts, gone>>
vars == <<now, ringVars, jobVars, done, countVars, tx, ghostVars>>

Jobs  == 1..JobCount
Lanes == 0..1
Slots == 0..(SlotCount - 1)
Lane(job) == job % 2

-----------------------------------------------------------------------------
(* Rows. Each bears the segment that its writer meant, also where the slot has moved on since. *)

ReadyRow(job, segment) ==
    [job |-> job, lane |-> Lane(job), pos |-> nextPos[Lane(job)],
     slot |-> segment.slot, gen |-> segment.gen]

\* Evidence is filed in the slot of the row that it speaks of: they are truncated together.
Evidence(r) == [lane |-> r.lane, pos |-> r.pos, slot |-> r.slot]
Pending(r)  == Evidence(r) \notin spent

NoBody == 0     \* a narrow row's body columns

\* Only a failed row's instant matters; the others' would but multiply the states.
TerminalRow(r, state, body) ==
    [job |-> r.job, lane |-> r.lane, pos |-> r.pos, slot |-> r.slot, gen |-> r.gen,
     state |-> state, at |-> IF state = "failed" THEN now ELSE 0, body |-> body]

Wide(d) == d.body # NoBody

\* A successful completion is compact: counted where it lies, without a delta (R026-12).
Compact(d) == d.state = "completed"

\* The retained ready row that a narrow row takes its body from (R026-03).
BackingRows(d) == {r \in ready : /\ r.slot = d.slot /\ r.gen = d.gen /\ r.pos = d.pos
                                 /\ r.lane = d.lane \/ Bug = "hydrate-ignores-shard"}
Hydrated(d) == IF Wide(d) THEN d.body ELSE (CHOOSE r \in BackingRows(d) : TRUE).job

-----------------------------------------------------------------------------
(* Prune's locks and rules. *)

Idle == [step |-> "idle"]

\* With the bug, `locked' is a step at which the ring has been read and is yet to be locked.
RingLocked == tx.step # "idle" /\ (Bug = "destination-before-lock" => tx.step # "locked")

\* From ExcludeWriters on nothing enters the victim's ready rows, and nothing enters or leaves its
\* retryable history; claims and compact completions go on. From Exclude on nobody gets in.
EveryoneOut(slot) == tx.step \in {"excluded", "truncated"} /\ tx.victim = slot
WritersOut(slot)  == /\ tx.step \in {"quiet", "spent", "proved", "carried", "folded",
                                     "excluded", "truncated"}
                     /\ tx.victim = slot
HistoryClosed(slot) == IF Bug = "history-left-open" THEN EveryoneOut(slot) ELSE WritersOut(slot)

\* The two gates ignore generation (law 6): all that lies in the child must be dead.
InGate(r, slot) == r.slot = slot /\ (Bug = "gate-by-generation" => r.gen = slots[slot].gen)
SpentAt(r) == IF Bug = "gate-ignores-shard"
              THEN \E e \in spent : e.slot = r.slot /\ e.pos = r.pos
              ELSE ~Pending(r)
NothingPending(slot) == \A r \in ready : InGate(r, slot) => SpentAt(r)
NothingOpen(slot)    == \A r \in attempts : ~InGate(r, slot)

\* R032-02, the boundary included. `instant' is the clock that prune has read.
InsideFloor(d, instant) == Floor > 0 /\ d.state = "failed" /\ d.at >= instant - Floor

\* The same, as prune applies it.
IsCarried(d) ==
    CASE Bug = "forgotten-carry"   -> FALSE
      [] Bug = "cancelled-carried" -> Floor > 0 /\ d.state # "completed" /\ d.at >= tx.now - Floor
      [] Bug = "cutoff-exclusive"  -> Floor > 0 /\ d.state = "failed" /\ d.at > tx.now - Floor
      [] OTHER                     -> InsideFloor(d, tx.now)

\* R032-03: wide, and moved to the open segment under its own position.
Carried(d) == [d EXCEPT !.slot = tx.to.slot, !.gen = tx.to.gen,
                        !.body = IF Bug = "carried-narrow" THEN d.body ELSE Hydrated(d)]

VictimsRows == {d \in done : d.slot = tx.victim}

\* TRUNCATE takes all that lies in the child, also what this transaction has just put there.
Emptied(rows, slot) == {x \in rows : x.slot # slot}

-----------------------------------------------------------------------------
Init ==
    /\ now = 0
    /\ ring = [slot |-> 0, gen |-> 1]
    /\ slots = [s \in Slots |-> IF s = 0 THEN [state |-> "open", gen |-> 1]
                                         ELSE [state |-> "pruned", gen |-> 0]]
    /\ nextPos = [l \in Lanes |-> 1]
    /\ producer = [j \in Jobs |-> [step |-> "absent"]]
    /\ ready = {} /\ spent = {} /\ attempts = {} /\ done = {}
    /\ delta = [s \in Slots |-> 0] /\ live = [s \in Slots |-> 0]
    /\ rolled = [other |-> 0, failed |-> 0]
    /\ tx = Idle
    /\ facts = 0 /\ gone = {}

Tick ==
    /\ now < LastInstant
    /\ now' = now + 1
    /\ UNCHANGED <<ringVars, jobVars, done, countVars, tx, ghostVars>>

-----------------------------------------------------------------------------
(* Producers. By the time of the append the cursor may be stale: that is legal, and the row lands in
   a slot that is sealed, or pruned, or open once more as a later generation. *)

ReadCursor(job) ==
    /\ producer[job].step = "absent"
    /\ producer' = [producer EXCEPT ![job] = [step |-> "reading", to |-> ring]]
    /\ UNCHANGED <<now, ringVars, nextPos, ready, spent, attempts, done, countVars, tx, ghostVars>>

EnqueueReady(job) ==
    /\ producer[job].step = "reading"
    /\ ~WritersOut(producer[job].to.slot)
    /\ nextPos[Lane(job)] <= LastPosition
    /\ ready' = ready \union {ReadyRow(job, producer[job].to)}
    /\ nextPos' = [nextPos EXCEPT ![Lane(job)] = @ + 1]
    /\ producer' = [producer EXCEPT ![job] = [step |-> "enqueued"]]
    /\ UNCHANGED <<now, ringVars, spent, attempts, done, countVars, tx, ghostVars>>

-----------------------------------------------------------------------------
(* The life of a job. *)

ClaimReady ==
    /\ \E r \in ready : /\ Pending(r) /\ ~EveryoneOut(r.slot)
                        /\ spent' = spent \union {Evidence(r)}
                        /\ attempts' = attempts \union {r}
    /\ UNCHANGED <<now, ringVars, nextPos, producer, ready, done, countVars, tx, ghostVars>>

CompleteCompact ==
    /\ \E r \in attempts : /\ ~EveryoneOut(r.slot)
                           /\ attempts' = attempts \ {r}
                           /\ done' = done \union {TerminalRow(r, "completed", NoBody)}
    /\ facts' = facts + 1
    /\ UNCHANGED <<now, ringVars, nextPos, producer, ready, spent, countVars, tx, gone>>

\* R026-02, R026-22: an attempt that failed leaves a narrow row beside its ready row, and a delta.
CloseAttempts ==
    /\ \E r \in attempts : /\ ~HistoryClosed(r.slot)
                           /\ attempts' = attempts \ {r}
                           /\ done' = done \union {TerminalRow(r, "failed", NoBody)}
                           /\ delta' = [delta EXCEPT ![r.slot] = @ + 1]
    /\ facts' = facts + 1
    /\ UNCHANGED <<now, ringVars, nextPos, producer, ready, spent, live, rolled, tx, gone>>

\* R026-18: an unclaimed job is cancelled; its row is born wide.
TombstoneReady ==
    /\ \E r \in ready : /\ Pending(r) /\ ~HistoryClosed(r.slot)
                        /\ spent' = spent \union {Evidence(r)}
                        /\ done' = done \union {TerminalRow(r, "cancelled", r.job)}
                        /\ delta' = [delta EXCEPT ![r.slot] = @ + 1]
    /\ facts' = facts + 1
    /\ UNCHANGED <<now, ringVars, nextPos, producer, ready, attempts, live, rolled, tx, gone>>

\* R026-19, R026-22: the terminal row goes and its count with it; the job gets a fresh ready row, and
\* the old one stays where it is, as dead as before.
RetryTerminal ==
    /\ \E d \in done :
        /\ d.state = "failed" /\ ~HistoryClosed(d.slot)
        /\ nextPos[Lane(d.job)] <= LastPosition
        /\ done' = done \ {d}
        /\ delta' = CASE Bug = "retry-keeps-count"      -> delta
                      [] Bug = "retry-counts-elsewhere" -> [delta EXCEPT ![ring.slot] = @ - 1]
                      [] OTHER                          -> [delta EXCEPT ![d.slot] = @ - 1]
        /\ ready' = (ready \ (IF Bug = "retry-deletes-ready" THEN BackingRows(d) ELSE {}))
                    \union {ReadyRow(d.job, ring)}
        /\ nextPos' = [nextPos EXCEPT ![Lane(d.job)] = @ + 1]
    /\ facts' = facts - 1
    /\ UNCHANGED <<now, ringVars, producer, spent, attempts, live, rolled, tx, gone>>

-----------------------------------------------------------------------------
(* Maintenance beside prune. *)

\* The next pruned slot, going round: rotation steps over what it can't use (law 7).
Ahead(s) == (s - ring.slot + SlotCount) % SlotCount
IsNextPruned(s) == /\ slots[s].state = "pruned"
                   /\ \A t \in Slots : slots[t].state = "pruned" => Ahead(s) <= Ahead(t)

Rotate(s) ==
    /\ IsNextPruned(s)
    /\ ring.gen < LastGeneration
    /\ RingLocked => Bug = "rotate-without-ring-lock"
    /\ ring' = [slot |-> s, gen |-> ring.gen + 1]
    /\ slots' = [slots EXCEPT ![ring.slot].state = "sealed",
                              ![s] = [state |-> "open", gen |-> ring.gen + 1]]
    /\ UNCHANGED <<now, jobVars, done, countVars, tx, ghostVars>>

\* R026-24: fold and truncate commit together.
FoldDeltas(s) ==
    /\ slots[s].state = "sealed" /\ ~EveryoneOut(s)
    /\ NothingPending(s) /\ NothingOpen(s)
    /\ delta[s] # 0
    /\ live' = [live EXCEPT ![s] = @ + delta[s]]
    /\ delta' = [delta EXCEPT ![s] = 0]
    /\ UNCHANGED <<now, ringVars, jobVars, done, rolled, tx, ghostVars>>

-----------------------------------------------------------------------------
(* Prune, step by step. *)

Step(from, to) == tx.step = from /\ tx' = [tx EXCEPT !.step = to]

OnlyTx == UNCHANGED <<now, ringVars, jobVars, done, countVars, ghostVars>>

\* R032-13: from here to the end the ring stands still.
LockRing ==
    /\ tx = Idle
    /\ \E s \in Slots : slots[s].state = "sealed"
    /\ tx' = [step |-> "locked", to |-> ring]
    /\ OnlyTx

\* R032-04: destination and clock are read in a statement of their own, under the lock. Any sealed
\* slot may be the victim: where one is held, prune tries another. LockSlot is part of this.
ObserveRing(victim) ==
    /\ tx.step = "locked"
    /\ slots[victim].state = "sealed" \/ Bug = "victim-unchecked"
    /\ tx' = [step |-> "observed", now |-> now, victim |-> victim,
              to |-> IF Bug = "destination-before-lock" THEN tx.to ELSE ring]
    /\ OnlyTx

\* Whoever already writes in the slot holds this up until it has ended.
ExcludeWriters ==
    /\ IF Bug = "gates-before-exclusion" THEN Step("proved early", "proved")
                                         ELSE Step("observed", "quiet")
    /\ OnlyTx

\* R026-13, R026-24. Claims go on meanwhile, so the order matters: an attempt begins with a pending
\* row, and once there is none there will be none. Where a gate holds the slot back, see Crash.
ProbePendingReady ==
    /\ CASE Bug = "gates-before-exclusion" -> Step("observed", "spent early")
         [] Bug = "gates-swapped"          -> Step("spent", "proved")
         [] OTHER                          -> Step("quiet", "spent")
    /\ NothingPending(tx.victim)
    /\ OnlyTx

ProbeOpenReceipts ==
    /\ CASE Bug = "gates-before-exclusion" -> Step("spent early", "proved early")
         [] Bug = "gates-swapped"          -> Step("quiet", "spent")
         [] OTHER                          -> Step("spent", "proved")
    /\ NothingOpen(tx.victim)
    /\ OnlyTx

\* R032-03 to R032-05: the wide rows, and their deltas in the same statement.
CarryForward ==
    /\ tx.step = "proved"
    /\ LET rows == {Carried(d) : d \in {x \in VictimsRows : IsCarried(x)}}
       IN  /\ tx' = [step |-> "carried", now |-> tx.now, victim |-> tx.victim, to |-> tx.to,
                     rows |-> rows,
                     delta |-> IF Bug = "carry-forgets-delta" THEN 0 ELSE Cardinality(rows)]
           /\ done' = IF Bug = "carry-commits-alone" THEN done \union rows ELSE done
    /\ UNCHANGED <<now, ringVars, jobVars, countVars, ghostVars>>

\* R032-06: what is dropped, from a scan of the rows themselves, split by what it was.
FoldRollup ==
    /\ tx.step = "carried"
    /\ LET dropped == {d \in VictimsRows : ~IsCarried(d) \/ Bug = "fold-counts-carried"}
           failed  == {d \in dropped : d.state = "failed"}
       IN  tx' = [step |-> "folded", now |-> tx.now, victim |-> tx.victim, to |-> tx.to,
                  rows |-> tx.rows, delta |-> tx.delta,
                  other |-> Cardinality(dropped \ failed), failed |-> Cardinality(failed)]
    /\ OnlyTx

\* Law 14: only now is anybody else kept out, and nothing need be proved again.
Exclude ==
    /\ Step("folded", "excluded")
    /\ OnlyTx

Truncate ==
    /\ Step("excluded", "truncated")
    /\ OnlyTx

\* Ghost: the facts of `slot' that no row tells of any more.
Dropped(slot, after, instant) ==
    {[job |-> d.job, failed |-> d.state = "failed", inside |-> InsideFloor(d, instant)] :
        d \in {x \in done : x.slot = slot /\ x.job \notin {y.job : y \in after}}}

\* MarkPruned and COMMIT. R032-12: all that `tx' has gathered at one instant.
MarkPruned ==
    /\ tx.step = "truncated"
    /\ LET v     == tx.victim
           after == Emptied(done \union tx.rows, v)
       IN  /\ done'  = after
           /\ ready' = Emptied(ready, v)
           /\ spent' = Emptied(spent, v)
           /\ delta' = [delta EXCEPT ![tx.to.slot] = @ + tx.delta, ![v] = 0]
           /\ live'  = [live EXCEPT ![v] = 0]
           /\ rolled' = IF Bug = "rollup-overwrites"
                        THEN [other |-> tx.other, failed |-> tx.failed]
                        ELSE [other |-> rolled.other + tx.other, failed |-> rolled.failed + tx.failed]
           /\ slots' = [slots EXCEPT ![v].state = "pruned"]
           /\ gone'  = gone \union Dropped(v, after, tx.now)
           /\ tx' = Idle
    /\ UNCHANGED <<now, ring, nextPos, producer, attempts, facts>>

\* A backend killed, a lock refused, a gate that holds the slot back: rolled back, after any step.
Crash ==
    /\ tx # Idle
    /\ tx' = Idle
    /\ OnlyTx

\* R032-07: a binary from before the floor drops everything and folds it into one column. It takes
\* the same locks, and so is told in one action.
OldPrune(v) ==
    /\ OldBinaries
    /\ ~RingLocked /\ slots[v].state = "sealed" /\ NothingPending(v) /\ NothingOpen(v)
    /\ done'  = Emptied(done, v)
    /\ ready' = Emptied(ready, v)
    /\ spent' = Emptied(spent, v)
    /\ delta' = [delta EXCEPT ![v] = 0]
    /\ live'  = [live EXCEPT ![v] = 0]
    /\ rolled' = [rolled EXCEPT !.other = @ + Cardinality(done \ done')]
    /\ slots' = [slots EXCEPT ![v].state = "pruned"]
    /\ gone'  = gone \union Dropped(v, done', now)
    /\ UNCHANGED <<now, ring, nextPos, producer, attempts, tx, facts>>

-----------------------------------------------------------------------------
Next ==
    \/ Tick
    \/ \E j \in Jobs : ReadCursor(j) \/ EnqueueReady(j)
    \/ ClaimReady \/ CompleteCompact \/ CloseAttempts \/ TombstoneReady \/ RetryTerminal
    \/ \E s \in Slots : Rotate(s) \/ FoldDeltas(s)
    \/ LockRing \/ \E s \in Slots : ObserveRing(s)
    \/ ExcludeWriters \/ ProbePendingReady \/ ProbeOpenReceipts
    \/ CarryForward \/ FoldRollup \/ Exclude \/ Truncate \/ MarkPruned \/ Crash
    \/ \E s \in Slots : OldPrune(s)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds in every state. *)

\* An enqueued job is in one place: never in none, never in two (R032-12).
Places(job) ==
    Cardinality({r \in ready : r.job = job /\ Pending(r)})
    + Cardinality({r \in attempts : r.job = job})
    + Cardinality({d \in done : d.job = job})
    + Cardinality({g \in gone : g.job = job})
EachJobInOnePlace == \A j \in Jobs : producer[j].step = "enqueued" => Places(j) = 1

\* R026-23, and not only when maintenance has caught up.
RECURSIVE SumOver(_, _)
SumOver(f, S) == IF S = {} THEN 0
                 ELSE LET s == CHOOSE x \in S : TRUE IN f[s] + SumOver(f, S \ {s})
ExactCounts ==
    SumOver(live, Slots) + SumOver(delta, Slots) + Cardinality({d \in done : Compact(d)})
        + rolled.other + rolled.failed = facts

\* R026-26: what the trust marker promises, slot by slot.
CountersMatchRows ==
    \A s \in Slots : live[s] + delta[s] = Cardinality({d \in done : d.slot = s /\ ~Compact(d)})

\* R032-06, R032-08: rollups know how many failures were dropped ...
DroppedFailures == Cardinality({g \in gone : g.failed})
SplitIsExact == rolled.failed = DroppedFailures

\* ... and with older binaries about, R032-07, at least they count none that was not.
SplitUndercountsOnly == /\ rolled.failed <= DroppedFailures
                        /\ rolled.failed + rolled.other = Cardinality(gone)

\* R032-02.
FailedInsideFloorSurvives == \A g \in gone : ~g.inside

\* R026-02, R026-03: a narrow row has its body.
TerminalHasRetainedReadyBody == \A d \in done : ~Wide(d) => BackingRows(d) # {}

\* R032-03: a wide one needs no ready row, because it bears its own job's body.
WideBodyIsItsOwn == \A d \in done : Wide(d) => d.body = d.job

\* R026-20 where ADR-032 does not amend it: all but failures live and die with their ready row.
OnlyFailedIsCarried ==
    \A d \in done : d.state # "failed" =>
        \E r \in ready : r.job = d.job /\ r.slot = d.slot /\ r.gen = d.gen

\* R032-13: the destination does not move under a carry.
Observed == tx.step \notin {"idle", "locked"}
DestinationIsCurrent == Observed => tx.to = ring

\* Law 6: one slot is open, and prune works on a sealed one.
RingIsSound == /\ \A s \in Slots : slots[s].state = "open" <=> s = ring.slot
               /\ slots[ring.slot].gen = ring.gen
               /\ Observed => slots[tx.victim].state = "sealed"

(* What holds of every step. *)

\* R032-08.
PrunedFailedNeverFalls == [][rolled'.failed >= rolled.failed]_vars

\* R026-01, R026-20: a ready row leaves only with its whole slot.
ReadyLeavesBySlot == [][\A r \in ready \ ready' : \A x \in ready' : x.slot # r.slot]_vars

-----------------------------------------------------------------------------
(* Witnesses: the good model must *violate* each, or its pass says less than it seems to. *)

CarriedFrom(wide) == tx.step = "carried" /\ \E d \in VictimsRows : Wide(d) = wide /\ IsCarried(d)

\* A carried row is carried once more.
NeverCarriesAgain == ~CarriedFrom(TRUE)

\* A carried row is retried after its first ready row is gone.
NeverRetriesCarried ==
    \A r \in ready : r.pos > 1 /\ Pending(r) => \E x \in ready : x # r /\ x.job = r.job

\* A failure outlives the floor and is dropped.
NeverDropsFailure == rolled.failed = 0

\* A producer appends to a slot that was pruned and opened again since it read the cursor.
NeverAppendsStale == \A r \in ready : r.gen = slots[r.slot].gen
=============================================================================
