//! A contender of which each call is timed. That is what every scenario measures with; nothing else of it
//! differs.

use std::future::Future;

use anyhow::Result;

use crate::calls::{Call, Calls, Times};
use crate::contender::{Claimer, Completer, Contender, Ender, Producer};
use crate::lab::Place;

#[derive(Clone)]
pub(crate) struct Clocked<C> {
    inner: C,
    calls: Calls,
}

/// A producer, a claimer or a completer, and where its calls are recorded.
pub(crate) struct Timed<T> {
    inner: T,
    times: Times,
}

impl<C> Clocked<C> {
    /// The contender, and the calls that those make who come of it from now on.
    pub(crate) fn new(inner: &C) -> (Self, Calls)
    where
        C: Clone,
    {
        let calls = Calls::default();
        (Self { inner: inner.clone(), calls: calls.clone() }, calls)
    }

    fn timed<T>(&self, call: Call, inner: T) -> Timed<T> {
        Timed { inner, times: self.calls.of(call) }
    }
}

impl<C: Contender> Contender for Clocked<C> {
    const NAME: &'static str = C::NAME;
    type Taken = C::Taken;
    type Producer = Timed<C::Producer>;
    type Claimer = Timed<C::Claimer>;
    type Completer = Timed<C::Completer>;

    async fn install(place: &Place, queues: usize) -> Result<Self> {
        Ok(Self { inner: C::install(place, queues).await?, calls: Calls::default() })
    }

    fn settle(place: &Place) -> impl Future<Output = Result<()>> + Send {
        C::settle(place)
    }

    async fn producer(&self) -> Result<Self::Producer> {
        Ok(self.timed(Call::Enqueue, self.inner.producer().await?))
    }

    async fn producers(&self, count: usize, one_process: bool) -> Result<Vec<Self::Producer>> {
        let producers = self.inner.producers(count, one_process).await?;
        Ok(producers.into_iter().map(|inner| self.timed(Call::Enqueue, inner)).collect())
    }

    async fn claimers(&self, queues: usize) -> Result<Vec<Self::Claimer>> {
        // One task has them all.
        let times = self.calls.of(Call::Claim);
        let claimers = self.inner.claimers(queues).await?;
        Ok(claimers.into_iter().map(|inner| Timed { inner, times: times.clone() }).collect())
    }

    async fn completer(&self) -> Result<Self::Completer> {
        Ok(self.timed(Call::Complete, self.inner.completer().await?))
    }
}

impl<P: Producer> Producer for Timed<P> {
    async fn enqueue(&mut self, queue: usize, args: Vec<String>) -> Result<()> {
        self.times.time(self.inner.enqueue(queue, args)).await
    }

    async fn copy(&mut self, queue: usize, args: Vec<String>) -> Result<()> {
        self.times.time(self.inner.copy(queue, args)).await
    }
}

impl<Taken: Send, C: Claimer<Taken>> Claimer<Taken> for Timed<C> {
    async fn claim(&mut self, limit: usize) -> Result<Option<(Taken, usize)>> {
        self.times.time(self.inner.claim(limit)).await
    }
}

impl<Taken: Send + 'static, C: Completer<Taken>> Completer<Taken> for Timed<C> {
    async fn complete(&mut self, taken: Taken) -> Result<()> {
        self.times.time(self.inner.complete(taken)).await
    }
}

impl<Taken: Send + 'static, E: Ender<Taken>> Ender<Taken> for Timed<E> {
    async fn end(&mut self, taken: Taken, fails: impl Fn(usize) -> bool + Send) -> Result<()> {
        self.times.time(self.inner.end(taken, fails)).await
    }
}
