//! Payload of each record kind on the wire.

use super::{Channel, Counter, Record, Sender, Stage};
use crate::codec::{Error, Reader, Writer};
use crate::operation::{Op, OpSet};
use crate::{block, interrupt};

impl Record<'_> {
    /// Returns the number of the record kind.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Stage { .. } => 2,
            Self::Begin { .. } => 3,
            Self::Sample { .. } => 4,
            Self::End { .. } => 5,
            Self::Skip { .. } => 6,
            Self::Fail { .. } => 7,
            Self::Panic { .. } => 8,
            Self::Done => 9,
            Self::Count { .. } => 10,
            Self::Launch { .. } => 11,
            Self::Relay { .. } => 12,
            Self::Reaped { .. } => 13,
            Self::Ready => 14,
            Self::Interrupts { .. } => 15,
            Self::Requests { .. } => 16,
            Self::Idle { .. } => 17,
            Self::Nonce { .. } => 18,
        }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        match *self {
            Self::Begin {
                op,
                clock_cost,
                loop_cost,
                exits,
            } => {
                out.byte(op.number())?;
                out.number(clock_cost)?;
                out.number(loop_cost)?;
                write_exits(out, exits)
            }
            Self::Sample {
                op,
                start,
                end,
                count,
            } => {
                out.byte(op.number())?;
                out.number(start)?;
                out.number(end.wrapping_sub(start))?;
                out.number(count)
            }
            Self::End {
                op,
                samples,
                check,
                exits,
            } => {
                out.byte(op.number())?;
                out.number(u64::from(samples))?;
                out.number(check)?;
                write_exits(out, exits)
            }
            Self::Idle { op, ticks, bytes } => {
                out.byte(op.number())?;
                out.number(ticks)?;
                out.number(bytes)
            }
            Self::Skip { op, reason } | Self::Fail { op, reason } => {
                out.byte(op.number())?;
                out.bytes(reason.as_bytes())
            }
            Self::Panic { message } => out.bytes(message.as_bytes()),
            Self::Nonce { nonce } => out.number(nonce),
            Self::Done | Self::Ready => Ok(()),
            Self::Interrupts { op, packed } | Self::Requests { op, packed } => {
                out.byte(op.number())?;
                out.bytes(packed)
            }
            Self::Hello { .. }
            | Self::Stage { .. }
            | Self::Count { .. }
            | Self::Launch { .. }
            | Self::Relay { .. }
            | Self::Reaped { .. } => self.write_event(out),
        }
    }

    /// Writes a record of the start of a guest, of a VMM, or of the init of a machine.
    fn write_event(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        match *self {
            Self::Hello {
                version,
                sender,
                ring,
                memory,
                planned,
            } => {
                out.number(u64::from(version))?;
                out.byte(sender as u8)?;
                out.byte(ring)?;
                out.number(memory)?;
                out.wide(planned.words())
            }
            Self::Stage { stage, at } => {
                out.byte(stage as u8)?;
                out.number(at)
            }
            Self::Count { counter, value } => {
                out.byte(counter as u8)?;
                out.number(value)
            }
            Self::Launch { child } => out.number(u64::from(child)),
            Self::Relay {
                child,
                channel,
                bytes,
            } => {
                out.number(u64::from(child))?;
                out.byte(channel as u8)?;
                out.bytes(bytes)
            }
            Self::Reaped {
                child,
                status,
                peak_kib,
            } => {
                out.number(u64::from(child))?;
                out.number(u64::from(status))?;
                out.number(peak_kib)
            }
            _ => Ok(()),
        }
    }
}

impl<'a> Record<'a> {
    /// Reads the payload of a record of this kind, which must have no further bytes.
    pub(crate) fn read(kind: u8, payload: &'a [u8]) -> Result<Self, Error> {
        let mut input = Reader::new(payload);
        let record = Self::read_fields(kind, &mut input)?;
        if input.is_empty() {
            Ok(record)
        } else {
            Err(Error::Malformed)
        }
    }

    fn read_fields(kind: u8, input: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match kind {
            1 => Self::Hello {
                version: read_u16(input)?,
                sender: Sender::from_number(input.byte()?)?,
                ring: input.byte()?,
                memory: input.number()?,
                planned: OpSet::from_words(input.wide()?),
            },
            2 => Self::Stage {
                stage: Stage::from_number(input.byte()?)?,
                at: input.number()?,
            },
            3 => Self::Begin {
                op: read_op(input)?,
                clock_cost: input.number()?,
                loop_cost: input.number()?,
                exits: read_exits(input)?,
            },
            4 => read_sample(input)?,
            5 => Self::End {
                op: read_op(input)?,
                samples: input.number32()?,
                check: input.number()?,
                exits: read_exits(input)?,
            },
            6 => Self::Skip {
                op: read_op(input)?,
                reason: input.text()?,
            },
            7 => Self::Fail {
                op: read_op(input)?,
                reason: input.text()?,
            },
            8 => Self::Panic {
                message: input.text()?,
            },
            9 => Self::Done,
            10 => Self::Count {
                counter: Counter::from_number(input.byte()?)?,
                value: input.number()?,
            },
            11 => Self::Launch {
                child: read_u16(input)?,
            },
            12 => Self::Relay {
                child: read_u16(input)?,
                channel: Channel::from_number(input.byte()?)?,
                bytes: input.bytes()?,
            },
            13 => read_reaped(input)?,
            14 => Self::Ready,
            15 => read_interrupts(input)?,
            16 => read_requests(input)?,
            17 => read_idle(input)?,
            18 => Self::Nonce {
                nonce: input.number()?,
            },
            _ => return Err(Error::Malformed),
        })
    }
}

fn read_sample<'a>(input: &mut Reader<'a>) -> Result<Record<'a>, Error> {
    let op = read_op(input)?;
    let start = input.number()?;
    let end = start.checked_add(input.number()?).ok_or(Error::Malformed)?;
    Ok(Record::Sample {
        op,
        start,
        end,
        count: input.number()?,
    })
}

fn read_reaped<'a>(input: &mut Reader<'a>) -> Result<Record<'a>, Error> {
    Ok(Record::Reaped {
        child: read_u16(input)?,
        status: input.number32()?,
        peak_kib: input.number()?,
    })
}

fn read_idle<'a>(input: &mut Reader<'a>) -> Result<Record<'a>, Error> {
    Ok(Record::Idle {
        op: read_op(input)?,
        ticks: input.number()?,
        bytes: input.number()?,
    })
}

/// Checks the packed interrupts, so that unpacking them later cannot fail.
fn read_interrupts<'a>(input: &mut Reader<'a>) -> Result<Record<'a>, Error> {
    let op = read_op(input)?;
    let packed = input.bytes()?;
    interrupt::unpack(packed, &mut |_| {})?;
    Ok(Record::Interrupts { op, packed })
}

fn read_requests<'a>(input: &mut Reader<'a>) -> Result<Record<'a>, Error> {
    let op = read_op(input)?;
    let packed = input.bytes()?;
    block::unpack(packed, &mut |_| {})?;
    Ok(Record::Requests { op, packed })
}

fn read_op(input: &mut Reader<'_>) -> Result<Op, Error> {
    Op::from_number(input.byte()?).ok_or(Error::Malformed)
}

fn read_u16(input: &mut Reader<'_>) -> Result<u16, Error> {
    u16::try_from(input.number()?).map_err(|_| Error::Malformed)
}

/// Writes 0 if absent, otherwise the count plus 1.
fn write_exits(out: &mut Writer<'_>, exits: Option<u64>) -> Result<(), Error> {
    out.number(exits.map_or(0, |count| count.saturating_add(1)))
}

fn read_exits(input: &mut Reader<'_>) -> Result<Option<u64>, Error> {
    Ok(input.number()?.checked_sub(1))
}
