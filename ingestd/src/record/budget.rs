//! The processor time that a recording takes: of this process and of its programs in the kernel. If it is over its budget for some seconds, the
//! recording leaves out the shortest events, and the ledger has their number.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use loom_probes::MeasuredPrograms;

use super::Recording;
use crate::process_time;

/// A share of one processor, as `top` shows it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Share {
    percent: f64,
}

impl Share {
    fn of(time: Duration, elapsed: Duration) -> Share {
        Share {
            percent: 100.0 * time.as_secs_f64() / elapsed.as_secs_f64(),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.percent)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let percent = text
            .strip_suffix('%')
            .and_then(|number| number.trim().parse().ok());
        let percent = percent.filter(|percent: &f64| *percent > 0.0 && percent.is_finite());
        let percent = percent.ok_or_else(|| {
            format!("'{text}' is not a share of a processor; give one such as 2%, of which 100% is a whole processor")
        })?;
        Ok(Share { percent })
    }
}

/// The time that a recording took in a period.
#[derive(Copy, Clone, Debug)]
pub struct Usage {
    process: Duration,
    /// `None`: it is not measured.
    programs: Option<Duration>,
    elapsed: Duration,
}

impl Usage {
    fn share(&self) -> Share {
        Share::of(
            self.process + self.programs.unwrap_or_default(),
            self.elapsed,
        )
    }

    /// The times since an earlier look.
    fn since(&self, before: &Usage) -> Usage {
        let programs = self.programs.zip(before.programs);
        Usage {
            process: self.process.saturating_sub(before.process),
            programs: programs.map(|(now, before)| now.saturating_sub(before)),
            elapsed: self.elapsed.saturating_sub(before.elapsed),
        }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = Share::of(self.process, self.elapsed);
        match self.programs {
            Some(programs) => {
                let programs = Share::of(programs, self.elapsed);
                write!(
                    f,
                    "{process} of a processor in its process, and {programs} in its programs in the kernel"
                )
            }
            None => write!(f, "{process} of a processor in its process"),
        }
    }
}

/// Measures a recording, and holds it to its budget.
pub struct Meter {
    budget: Option<Share>,
    measured: Option<MeasuredPrograms>,
    begun: Instant,
    process_begun: Duration,
    looked: Usage,
    /// The usage of the last second.
    latest: Option<Usage>,
    /// The seconds in a row that were over the budget.
    over: u32,
    /// Recording less cannot help, and a warning has said so.
    is_given_up: bool,
}

/// The seconds over the budget after which less is recorded.
const PATIENCE: u32 = 5;
const SECOND: Duration = Duration::from_secs(1);

impl Meter {
    /// Create it before the recording. Measuring programs slows them down, so only a budget asks for it.
    pub fn new(budget: Option<Share>) -> Meter {
        let measured = match budget {
            Some(_) => MeasuredPrograms::ask(),
            None => MeasuredPrograms::of_machine(),
        };
        Meter {
            budget,
            looked: Usage {
                process: Duration::ZERO,
                programs: measured.is_some().then_some(Duration::ZERO),
                elapsed: Duration::ZERO,
            },
            measured,
            begun: Instant::now(),
            process_begun: process_time(),
            latest: None,
            over: 0,
            is_given_up: false,
        }
    }

    /// Whether a budget counts without the programs in the kernel, because they cannot be measured.
    pub fn is_blind(&self) -> bool {
        self.budget.is_some() && self.measured.is_none()
    }

    /// The usage of the last second, and of the whole recording so far. Call it often.
    pub fn look(&mut self, recording: &Recording) -> (Option<Usage>, Usage) {
        let whole = Usage {
            process: process_time().saturating_sub(self.process_begun),
            programs: self.measured.is_some().then(|| recording.program_time()),
            elapsed: self.begun.elapsed(),
        };
        let last = whole.since(&self.looked);
        if last.elapsed >= SECOND {
            self.looked = whole;
            self.latest = Some(last);
            self.hold(last.share(), recording);
        }
        (self.latest, whole)
    }

    fn hold(&mut self, share: Share, recording: &Recording) {
        let Some(budget) = self.budget else { return };
        let is_over = share.percent > budget.percent;
        self.over = if is_over { self.over + 1 } else { 0 };
        if self.over == PATIENCE {
            self.over = 0;
            let mut narrowed = recording.record_less().peekable();
            if narrowed.peek().is_none() && !self.is_given_up {
                self.is_given_up = true;
                tracing::warn!(
                    "the recording took {share} of a processor, and its budget is {} %; leaving out more events would not help, because the rest is the work of its programs in the kernel and of the daemon",
                    budget.percent
                );
            }
            for (source, least) in narrowed {
                tracing::warn!(
                    "source '{source}': the recording took {share} of a processor, and its budget is {} %; events below {least:?} are left out from now on",
                    budget.percent
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_one_processor() {
        assert_eq!("2%".parse(), Ok(Share { percent: 2.0 }));
        assert_eq!("0.5 %".parse(), Ok(Share { percent: 0.5 }));
        for wrong in ["2", "0%", "-1%", "NaN%", "inf%", "%", "x%"] {
            let refused = wrong.parse::<Share>().unwrap_err();
            assert!(refused.contains("give one such as 2%"), "{refused}");
        }
        let usage = Usage {
            process: Duration::from_millis(30),
            programs: Some(Duration::from_millis(20)),
            elapsed: Duration::from_secs(2),
        };
        assert_eq!(usage.share().to_string(), "2.5 %");
        assert_eq!(
            usage.to_string(),
            "1.5 % of a processor in its process, and 1.0 % in its programs in the kernel"
        );
    }
}
