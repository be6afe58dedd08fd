//! Memory that a guest asks for and gives back while it runs, one region at a time.
//! See [`trapline_abi::populate`] for the words.

use trapline_abi::platform::POPULATE_IS_THERE;
use trapline_abi::populate::{Refusal, Wish, GIVE_BACK};

/// Remembers which region is there, and what came of the last word.
#[derive(Debug)]
pub struct Populate {
    there: Option<Wish>,
    answer: u32,
}

/// What is to be done with the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Make such a region and attach it.
    Give(Wish),
    /// Detach the region.
    TakeBack,
}

impl Default for Populate {
    fn default() -> Self {
        Self {
            there: None,
            answer: POPULATE_IS_THERE,
        }
    }
}

impl Populate {
    /// The guest writes a word. What is to be done, if it makes sense; [`Self::done`]
    /// has to be told how that went before the next word.
    pub fn write(&mut self, word: u32) -> Option<Order> {
        let asked = match word {
            GIVE_BACK => Ok(Order::TakeBack),
            word => Wish::of_word(word).map(Order::Give).ok_or(Refusal::NoWish),
        };
        let order = asked.and_then(|order| match (order, self.there) {
            (Order::Give(_), None) | (Order::TakeBack, Some(_)) => Ok(order),
            _ => Err(Refusal::OutOfTurn),
        });
        match order {
            Ok(order) => Some(order),
            Err(refusal) => {
                self.answer = refusal.word();
                None
            }
        }
    }

    /// What came of an order.
    pub fn done(&mut self, order: Order, outcome: Result<(), Refusal>) {
        self.answer = match (order, outcome) {
            (_, Err(refusal)) => refusal.word(),
            (Order::Give(wish), Ok(())) => {
                self.there = Some(wish);
                wish.word()
            }
            (Order::TakeBack, Ok(())) => {
                self.there = None;
                0
            }
        };
    }

    /// What the guest reads.
    pub fn read(&self) -> u32 {
        self.answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WISH: Wish = Wish::ALL[6];

    #[test]
    fn a_region_comes_and_goes_and_each_time_is_told() {
        let mut device = Populate::default();
        assert_eq!(device.read(), POPULATE_IS_THERE);
        assert_eq!(device.write(WISH.word()), Some(Order::Give(WISH)));
        device.done(Order::Give(WISH), Ok(()));
        assert_eq!(device.read(), WISH.word());
        assert_eq!(device.write(Wish::ALL[0].word()), None, "one at a time");
        assert_eq!(device.read(), Refusal::OutOfTurn.word());
        assert_eq!(device.write(GIVE_BACK), Some(Order::TakeBack));
        device.done(Order::TakeBack, Ok(()));
        assert_eq!(device.read(), 0);
        assert_eq!(device.write(GIVE_BACK), None);
        assert_eq!(device.read(), Refusal::OutOfTurn.word());
    }

    #[test]
    fn what_is_refused_is_an_answer_and_changes_nothing() {
        let mut device = Populate::default();
        for word in [0, 9, POPULATE_IS_THERE] {
            assert_eq!(device.write(word), None);
            assert_eq!(device.read(), Refusal::NoWish.word());
        }
        device.write(WISH.word());
        device.done(Order::Give(WISH), Err(Refusal::NoMemory));
        assert_eq!(device.read(), Refusal::NoMemory.word());
        assert_eq!(device.write(WISH.word()), Some(Order::Give(WISH)));
        device.done(Order::Give(WISH), Ok(()));
        device.write(GIVE_BACK);
        device.done(Order::TakeBack, Err(Refusal::Failed));
        assert_eq!(device.write(WISH.word()), None, "it is still there");
    }

    proptest! {
        /// Whatever is written and however it goes, regions come and go in turn.
        #[test]
        fn there_is_never_more_than_one(words in prop::collection::vec((word(), any::<bool>()), 0..100)) {
            let (mut device, mut there) = (Populate::default(), false);
            for (word, goes_well) in words {
                let Some(order) = device.write(word) else {
                    prop_assert!(Refusal::of_word(device.read()).is_some());
                    continue;
                };
                prop_assert_eq!(order == Order::TakeBack, there);
                device.done(order, if goes_well { Ok(()) } else { Err(Refusal::Failed) });
                there ^= goes_well;
            }
        }
    }

    fn word() -> impl Strategy<Value = u32> {
        let wishes = prop::sample::select(Wish::ALL.to_vec()).prop_map(Wish::word);
        prop_oneof![wishes, Just(GIVE_BACK), any::<u32>()]
    }
}
