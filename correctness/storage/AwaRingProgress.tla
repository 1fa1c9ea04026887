--------------------------- MODULE AwaRingProgress ---------------------------
(*
The ring does not stop for good (law 7 of docs/LAWS.md, hazard H32).

A slot may be pinned for as long as anyone likes: by a long job, a callback that never comes, a
producer that forgot to commit. So rotation goes to the next *pruned* slot wherever it stands, and
prune tries sealed slots oldest first and steps over one that is held.

A slot that was stepped over is tried again after a back-off, which is longer than it takes to try
the other sealed slots. That is told as rounds here: each slot that is sealed when a round begins is
tried once before the next one begins.

No rows, no generations, and nothing bounded: only whether things go on. AwaShardedPrune has the
rest. `Bug' switches one mistake on; each has a .cfg of its own in broken/.
*)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    SlotCount,      \* slots of the ring
    StragglersMax,  \* slots that may be pinned at one time for as long as their stragglers like
    Bug             \* "none", or the mistake of a Broken twin

VARIABLES
    open,       \* the open slot
    sealed,     \* sealed slots, the oldest segment first; a slot that is neither is pruned
    occupant,   \* slot -> what keeps it from being pruned: "none", "work", "straggler"
    due         \* sealed slots that this round of prune has yet to try

vars == <<open, sealed, occupant, due>>

Slots      == 0..(SlotCount - 1)
Sealed     == {sealed[i] : i \in 1..Len(sealed)}
Pruned     == Slots \ (Sealed \union {open})
Stragglers == {s \in Slots : occupant[s] = "straggler"}

Ahead(s)   == (s - open + SlotCount) % SlotCount
NextPruned == CHOOSE s \in Pruned : \A t \in Pruned : Ahead(s) <= Ahead(t)

Init ==
    /\ open = 0
    /\ sealed = <<>>
    /\ occupant = [s \in Slots |-> IF s = 0 THEN "work" ELSE "none"]
    /\ due = {}

-----------------------------------------------------------------------------
(* What lies in a slot that was opened: jobs arrive, and nearly all of them end. *)

WorkEnds(s) ==
    /\ occupant[s] = "work"
    /\ occupant' = [occupant EXCEPT ![s] = "none"]
    /\ UNCHANGED <<open, sealed, due>>

WorkDragsOn(s) ==
    /\ occupant[s] = "work"
    /\ Cardinality(Stragglers) < StragglersMax
    /\ occupant' = [occupant EXCEPT ![s] = "straggler"]
    /\ UNCHANGED <<open, sealed, due>>

\* It may end; nothing says that it will.
StragglerEnds(s) ==
    /\ occupant[s] = "straggler"
    /\ occupant' = [occupant EXCEPT ![s] = "none"]
    /\ UNCHANGED <<open, sealed, due>>

-----------------------------------------------------------------------------
Rotate ==
    /\ Pruned # {}
    /\ Bug = "rotate-to-neighbour-only" => Ahead(NextPruned) = 1
    /\ open' = NextPruned
    /\ sealed' = Append(sealed, open)
    /\ occupant' = [occupant EXCEPT ![NextPruned] = "work"]
    /\ UNCHANGED due

BeginRound ==
    /\ due = {} /\ sealed # <<>>
    /\ due' = CASE Bug = "oldest-only"     -> {sealed[1]}
                [] Bug = "without-back-off" -> {sealed[i] : i \in (1..Len(sealed)) \intersect {1, 2}}
                [] OTHER                   -> Sealed
    /\ UNCHANGED <<open, sealed, occupant>>

\* Oldest first.
IsNextDue(s) ==
    \E i \in 1..Len(sealed) : /\ sealed[i] = s /\ s \in due
                              /\ \A k \in 1..(i - 1) : sealed[k] \notin due

Prune(s) ==
    /\ IsNextDue(s)
    /\ occupant[s] = "none"
    /\ sealed' = SelectSeq(sealed, LAMBDA x : x # s)
    /\ due' = due \ {s}
    /\ UNCHANGED <<open, occupant>>

\* A gate held the slot back, or its lock was not to be had in time: readers come and go.
StepOver(s) ==
    /\ IsNextDue(s)
    /\ due' = due \ {s}
    /\ UNCHANGED <<open, sealed, occupant>>

-----------------------------------------------------------------------------
Next ==
    \/ Rotate \/ BeginRound
    \/ \E s \in Slots : WorkEnds(s) \/ WorkDragsOn(s) \/ StragglerEnds(s)
    \/ \E s \in Slots : Prune(s) \/ StepOver(s)

\* What may be relied on: maintenance does what is due; work that doesn't drag on ends; and a slot
\* that is free each time it is tried is pruned some time (H24), unless a reader stays in it.
Fairness ==
    /\ WF_vars(Rotate) /\ WF_vars(BeginRound)
    /\ \A s \in Slots :
        /\ WF_vars(WorkEnds(s) \/ WorkDragsOn(s))
        /\ WF_vars(Prune(s) \/ StepOver(s))
        /\ IF Bug = "reader-stays" THEN WF_vars(Prune(s)) ELSE SF_vars(Prune(s))

Spec == Init /\ [][Next]_vars /\ Fairness

-----------------------------------------------------------------------------
\* The ring goes on turning, whatever holds slots and for however long.
RingNeverStops == []<><<Rotate>>_vars

\* And whatever can be pruned will be: space doesn't pile up behind a straggler.
FreeSlotIsPruned == \A s \in Slots : (s \in Sealed /\ occupant[s] = "none") ~> s \in Pruned
=============================================================================
