//! Memory hotplug on guest request, one region at a time ([`trapline_abi::populate`]).

use trapline_abi::platform::POPULATE_PRESENT;
use trapline_abi::populate::{MemoryRequest, Refusal, RELEASE};

/// State of the device: the attached region, and the result of the last request.
#[derive(Debug)]
pub struct Hotplug {
    there: Option<MemoryRequest>,
    answer: u32,
}

/// A hotplug request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotplugRequest {
    /// Attach a new region.
    Attach(MemoryRequest),
    /// Detach the region.
    Detach,
}

impl Default for Hotplug {
    fn default() -> Self {
        Self {
            there: None,
            answer: POPULATE_PRESENT,
        }
    }
}

impl Hotplug {
    /// Decodes a request; if it is valid, [`Self::done`] must follow.
    pub fn write(&mut self, word: u32) -> Option<HotplugRequest> {
        let asked = match word {
            RELEASE => Ok(HotplugRequest::Detach),
            word => MemoryRequest::from_word(word)
                .map(HotplugRequest::Attach)
                .ok_or(Refusal::Invalid),
        };
        let order = asked.and_then(|order| match (order, self.there) {
            (HotplugRequest::Attach(_), None) | (HotplugRequest::Detach, Some(_)) => Ok(order),
            _ => Err(Refusal::WrongState),
        });
        match order {
            Ok(order) => Some(order),
            Err(refusal) => {
                self.answer = refusal.word();
                None
            }
        }
    }

    /// Records the result of a request.
    pub fn done(&mut self, order: HotplugRequest, outcome: Result<(), Refusal>) {
        self.answer = match (order, outcome) {
            (_, Err(refusal)) => refusal.word(),
            (HotplugRequest::Attach(wish), Ok(())) => {
                self.there = Some(wish);
                wish.word()
            }
            (HotplugRequest::Detach, Ok(())) => {
                self.there = None;
                0
            }
        };
    }

    /// Returns the result of the last request.
    pub fn read(&self) -> u32 {
        self.answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WISH: MemoryRequest = MemoryRequest::ALL[6];

    #[test]
    fn region_is_attached_and_detached() {
        let mut device = Hotplug::default();
        assert_eq!(device.read(), POPULATE_PRESENT);
        assert_eq!(
            device.write(WISH.word()),
            Some(HotplugRequest::Attach(WISH))
        );
        device.done(HotplugRequest::Attach(WISH), Ok(()));
        assert_eq!(device.read(), WISH.word());
        assert_eq!(
            device.write(MemoryRequest::ALL[0].word()),
            None,
            "one at a time"
        );
        assert_eq!(device.read(), Refusal::WrongState.word());
        assert_eq!(device.write(RELEASE), Some(HotplugRequest::Detach));
        device.done(HotplugRequest::Detach, Ok(()));
        assert_eq!(device.read(), 0);
        assert_eq!(device.write(RELEASE), None);
        assert_eq!(device.read(), Refusal::WrongState.word());
    }

    #[test]
    fn refused_request_changes_nothing() {
        let mut device = Hotplug::default();
        for word in [0, 9, POPULATE_PRESENT] {
            assert_eq!(device.write(word), None);
            assert_eq!(device.read(), Refusal::Invalid.word());
        }
        device.write(WISH.word());
        device.done(HotplugRequest::Attach(WISH), Err(Refusal::NoMemory));
        assert_eq!(device.read(), Refusal::NoMemory.word());
        assert_eq!(
            device.write(WISH.word()),
            Some(HotplugRequest::Attach(WISH))
        );
        device.done(HotplugRequest::Attach(WISH), Ok(()));
        device.write(RELEASE);
        device.done(HotplugRequest::Detach, Err(Refusal::Failed));
        assert_eq!(device.write(WISH.word()), None, "it is still there");
    }

    proptest! {
        /// Requests alternate for any input and result.
        #[test]
        fn at_most_one_region_is_attached(words in prop::collection::vec((word(), any::<bool>()), 0..100)) {
            let (mut device, mut there) = (Hotplug::default(), false);
            for (word, goes_well) in words {
                let Some(order) = device.write(word) else {
                    prop_assert!(Refusal::from_word(device.read()).is_some());
                    continue;
                };
                prop_assert_eq!(order == HotplugRequest::Detach, there);
                device.done(order, if goes_well { Ok(()) } else { Err(Refusal::Failed) });
                there ^= goes_well;
            }
        }
    }

    fn word() -> impl Strategy<Value = u32> {
        let wishes =
            prop::sample::select(MemoryRequest::ALL.to_vec()).prop_map(MemoryRequest::word);
        prop_oneof![wishes, Just(RELEASE), any::<u32>()]
    }
}
