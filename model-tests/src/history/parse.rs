//! Operations read from text.

use std::str::{FromStr, SplitWhitespace};

use awa_core::{Ring, Slot, Span};

use super::op::{Batch, How, LaneName, Op, Scope, Which, Whose};

/// What is wrong with a line.
type Unread = String;

struct Words<'a>(std::iter::Peekable<SplitWhitespace<'a>>);

impl Words<'_> {
    fn word(&mut self) -> Result<&str, Unread> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }

    /// The next word, if it is this one.
    fn takes(&mut self, word: &str) -> bool {
        self.0.next_if(|next| *next == word).is_some()
    }

    fn expect(&mut self, word: &str) -> Result<(), Unread> {
        if self.takes(word) { Ok(()) } else { Err(format!("{word:?} is missing")) }
    }

    fn number<T: FromStr>(&mut self) -> Result<T, Unread> {
        number(self.word()?)
    }

    fn seconds(&mut self) -> Result<u64, Unread> {
        let word = self.word()?;
        number(word.strip_suffix('s').ok_or_else(|| format!("{word:?} is no time"))?)
    }

    fn span(&mut self) -> Result<Span, Unread> {
        let word = self.word()?;
        if let Some(us) = word.strip_suffix("us") {
            return number(us).map(Span::from_us);
        }
        let s = word.strip_suffix('s').ok_or_else(|| format!("{word:?} is no time"))?;
        number(s).map(Span::from_secs)
    }

    fn letter(&mut self, of: &str) -> Result<char, Unread> {
        let word = self.word()?;
        let letter = word.chars().next().filter(|c| word.len() == 1 && of.contains(*c));
        letter.ok_or_else(|| format!("{word:?} is none of {of:?}"))
    }

    fn producer(&mut self) -> Result<u8, Unread> {
        let word = self.word()?;
        number(word.strip_prefix('p').ok_or_else(|| format!("{word:?} is no producer"))?)
    }

    fn lane(&mut self) -> Result<LaneName, Unread> {
        let word = self.word()?;
        let wrong = || format!("{word:?} is no lane");
        let mut parts = word.split('/');
        let queue = match parts.next() {
            Some("a") => 'a',
            Some("b") => 'b',
            Some(_) | None => return Err(wrong()),
        };
        let priority = number(parts.next().ok_or_else(wrong)?)?;
        let shard = parts.next().map_or(Ok(0), number)?;
        Ok(LaneName { queue, priority, shard })
    }

    fn batch(&mut self) -> Result<Batch, Unread> {
        let (count, lane) = (self.number()?, self.lane()?);
        let mut batch = Batch { count, lane, kind: 'k', attempts: 3, tagged: false };
        loop {
            if self.takes("kind") {
                batch.kind = self.letter("kl")?;
            } else if self.takes("attempts") {
                batch.attempts = self.number()?;
            } else if self.takes("tagged") {
                batch.tagged = true;
            } else {
                return Ok(batch);
            }
        }
    }

    fn ring(&mut self) -> Result<Ring, Unread> {
        let word = self.word()?;
        let ring = Ring::ALL.into_iter().find(|ring| ring.as_str() == word);
        ring.ok_or_else(|| format!("{word:?} is no ring"))
    }

    fn whose(&mut self) -> Result<Whose, Unread> {
        match self.word()? {
            "all" => Ok(Whose::All),
            "any" => self.number().map(Whose::Any),
            "old" => self.number().map(Whose::Old),
            "job" => {
                let mut jobs = vec![self.number()?];
                while let Some(job) = self.0.peek().and_then(|word| word.parse().ok()) {
                    self.0.next();
                    jobs.push(job);
                }
                Ok(Whose::Jobs(jobs))
            }
            word => Err(format!("{word:?} is nobody")),
        }
    }

    fn which(&mut self) -> Result<Which, Unread> {
        match self.word()? {
            "job" => self.number().map(Which::Job),
            "any" => self.number().map(Which::Any),
            word => Err(format!("{word:?} is no job")),
        }
    }

    fn scope(&mut self) -> Result<Scope, Unread> {
        if self.takes("kind") {
            self.letter("kl").map(Scope::Kind)
        } else if self.takes("queue") {
            self.letter("ab").map(Scope::Queue)
        } else {
            self.which().map(Scope::One)
        }
    }

    fn prune(&mut self) -> Result<Op, Unread> {
        let ring = self.ring()?;
        let slot = if self.takes("slot") { Some(Slot(self.number()?)) } else { None };
        self.expect("keep")?;
        let keep_s = if self.takes("all") { None } else { Some(self.seconds()?) };
        Ok(Op::Prune { ring, slot, keep_s })
    }

    fn plant(&mut self) -> Result<Op, Unread> {
        let lane = self.lane()?;
        self.expect("at")?;
        let seq = self.number()?;
        self.expect("job")?;
        let job = self.number()?;
        self.expect("slot")?;
        Ok(Op::Plant { lane, seq, job, slot: self.number()?, generation: self.number()? })
    }

    fn claim(&mut self) -> Result<Op, Unread> {
        let (lane, limit) = (self.lane()?, self.number()?);
        let for_s = if self.takes("for") { Some(self.seconds()?) } else { None };
        Ok(Op::Claim { lane, limit, for_s })
    }

    fn op(&mut self) -> Result<Op, Unread> {
        Ok(match self.word()? {
            "enqueue" => Op::Enqueue(self.batch()?),
            "copy" => Op::Copy(self.batch()?),
            "schedule" => {
                let batch = self.batch()?;
                self.expect("in")?;
                Op::Schedule(batch, self.seconds()?)
            }
            "begin" => {
                let producer = self.producer()?;
                let repeatable_read = self.takes("repeatable");
                if repeatable_read {
                    self.expect("read")?;
                }
                Op::Begin { producer, repeatable_read }
            }
            "produce" => Op::Produce(self.producer()?, self.batch()?),
            "commit" => Op::Commit(self.producer()?),
            "abort" => Op::Abort(self.producer()?),
            "promote" => Op::Promote(self.number()?),
            "claim" => self.claim()?,
            "complete" => Op::Finish(self.whose()?, How::Complete),
            "fail" => Op::Finish(self.whose()?, How::Fail),
            "postpone" => {
                let whose = self.whose()?;
                self.expect("by")?;
                Op::Finish(whose, How::Postpone(self.seconds()?))
            }
            "hand" => {
                self.expect("back")?;
                Op::Finish(self.whose()?, How::HandBack)
            }
            "rescue" => Op::Rescue,
            "cancel" => Op::Cancel(self.which()?),
            "delete" => Op::Delete(self.which()?),
            "retry" => Op::Retry(self.scope()?),
            "discard" => Op::Discard(self.scope()?),
            "rotate" => Op::Rotate(self.ring()?),
            "prune" => self.prune()?,
            "rollup" => Op::Rollup,
            "rebuild" => Op::Rebuild,
            "distrust" => Op::Distrust,
            "counts" => Op::Counts(self.letter("ab")?),
            "show" => Op::Show(self.which()?),
            "advance" => Op::Advance(self.span()?),
            "restart" => Op::Restart,
            "crash" => {
                self.expect("after")?;
                let word = self.word()?;
                let acts = number(word.strip_suffix(':').ok_or("a colon is missing")?)?;
                Op::Crash(acts, Box::new(self.op()?))
            }
            "plant" => self.plant()?,
            word => return Err(format!("{word:?} is no operation")),
        })
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, Unread> {
    word.parse().map_err(|_| format!("{word:?} is no number here"))
}

impl FromStr for Op {
    type Err = Unread;

    fn from_str(line: &str) -> Result<Self, Unread> {
        let mut words = Words(line.split_whitespace().peekable());
        let op = words.op().map_err(|what| format!("{line}: {what}"))?;
        match words.0.next() {
            None => Ok(op),
            Some(word) => Err(format!("{line}: {word:?} is too much")),
        }
    }
}
