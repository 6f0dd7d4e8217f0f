//! The processor time that a recording takes: of this process and of its programs in the kernel. If it is over its budget for some seconds, the
//! recording leaves out the shortest events, and the ledger has their number. If it is far below its budget for longer, it records them again.

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
    governor: Governor,
    /// Recording less cannot help, and a warning has said so.
    is_given_up: bool,
}

/// Decides each second whether to record less or more, so that it seldom takes a decision back.
#[derive(Debug)]
struct Governor {
    /// The seconds in a row that were over the budget, and below half of it.
    over: u32,
    below: u32,
    /// The seconds below half of the budget after which more is recorded.
    calm: u32,
    /// The seconds since more was recorded, until this has proved itself.
    since_more: Option<u32>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Step {
    Less,
    More,
}

/// The seconds over the budget after which less is recorded.
const PATIENCE: u32 = 5;
/// The seconds below half of the budget after which more is recorded. They double if that was too much.
const CALM: u32 = 10;
const CALM_MAX: u32 = 640;

impl Governor {
    const fn new() -> Governor {
        Governor {
            over: 0,
            below: 0,
            calm: CALM,
            since_more: None,
        }
    }

    /// The step after another second. `is_narrowed`: something is left out now.
    fn step(&mut self, share: Share, budget: Share, is_narrowed: bool) -> Option<Step> {
        let is_over = share.percent > budget.percent;
        let is_below = is_narrowed && share.percent < budget.percent / 2.0;
        self.over = if is_over { self.over + 1 } else { 0 };
        self.below = if is_below { self.below + 1 } else { 0 };
        self.since_more = self.since_more.map(|seconds| seconds + 1);
        if self
            .since_more
            .is_some_and(|seconds| seconds > self.calm + PATIENCE)
        {
            self.since_more = None;
            self.calm = CALM;
        }
        if self.over == PATIENCE {
            self.over = 0;
            if self.since_more.take().is_some() {
                self.calm = CALM_MAX.min(2 * self.calm);
            }
            return Some(Step::Less);
        }
        // A step that has proved itself makes the wait shorter, perhaps than what has passed.
        if self.below >= self.calm {
            self.below = 0;
            self.since_more = Some(0);
            return Some(Step::More);
        }
        None
    }
}

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
            governor: Governor::new(),
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
        match self.governor.step(share, budget, recording.is_narrowed()) {
            Some(Step::Less) => self.record_less(share, budget, recording),
            Some(Step::More) => {
                for (source, least) in recording.record_more() {
                    let events = match least {
                        Duration::ZERO => "all events".to_owned(),
                        least => format!("events from {least:?} on"),
                    };
                    tracing::warn!(
                        "source '{source}': the recording took {share} of a processor, less than half of its budget of {} %; {events} are recorded from now on",
                        budget.percent
                    );
                }
            }
            None => {}
        }
    }

    fn record_less(&mut self, share: Share, budget: Share, recording: &Recording) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds in which a governor steps down and up, if the load is `share(narrowings)` of a budget of 2 %.
    fn steps(seconds: u32, share: impl Fn(u32, u32) -> f64) -> Vec<(u32, Step)> {
        let mut governor = Governor::new();
        let mut narrowed = 0;
        let mut steps = Vec::new();
        for second in 1..=seconds {
            let percent = share(second, narrowed);
            let step = governor.step(Share { percent }, Share { percent: 2.0 }, narrowed > 0);
            match step {
                Some(Step::Less) => narrowed += 1,
                Some(Step::More) => narrowed -= 1,
                None => continue,
            }
            steps.extend(step.map(|step| (second, step)));
        }
        steps
    }

    #[test]
    fn after_a_burst_everything_is_recorded_again_step_by_step() {
        use Step::{Less, More};
        // In the burst two steps suffice.
        let burst = |second, narrowed| match (second, narrowed) {
            (..=20, ..2) => 3.0,
            (..=20, _) => 1.5,
            _ => 0.5,
        };
        let expected = [(5, Less), (10, Less), (30, More), (40, More)];
        assert_eq!(steps(100, burst), expected);
        // Between half of the budget and the whole, nothing changes; nor if a second of five or ten is different.
        assert_eq!(
            steps(100, |_, narrowed| if narrowed == 0 { 3.0 } else { 1.0 }),
            [(5, Less)]
        );
        assert_eq!(
            steps(100, |second, _| if second % 5 == 0 { 1.0 } else { 3.0 }),
            []
        );
        let seldom = |second, narrowed| match narrowed {
            0 => 3.0,
            _ if second % 10 == 0 => 1.5,
            _ => 0.5,
        };
        assert_eq!(steps(100, seldom), [(5, Less)]);
    }

    #[test]
    fn a_wait_that_becomes_shorter_than_what_has_passed_is_over() {
        use Step::{Less, More};
        let load = |second, narrowed| match (second, narrowed) {
            (..=30, ..3) => 3.0,
            (58, _) => 1.5,
            _ => 0.5,
        };
        let down = [(5, Less), (10, Less), (15, Less), (25, More), (30, Less)];
        let up = [(50, More), (76, More), (86, More)];
        assert_eq!(steps(1000, load), [&down[..], &up].concat());
    }

    #[test]
    fn a_load_that_no_step_fits_swings_ever_more_seldom() {
        // One step records almost nothing, and none is too much.
        let steep = |_, narrowed| if narrowed == 0 { 3.0 } else { 0.1 };
        let all = steps(3600, steep);
        let ups = all.iter().filter(|(_, step)| *step == Step::More);
        let ups: Vec<u32> = ups.map(|(second, _)| *second).collect();
        assert_eq!(ups.get(..4), Some(&[15, 40, 85, 170][..]));
        assert!(ups.len() < 12, "{ups:?}");
        // Once a step up has proved itself, the next one comes soon.
        let later = |second, narrowed| {
            if second > 100 {
                0.1
            } else {
                steep(second, narrowed)
            }
        };
        let calm = |second, narrowed| match second {
            400..405 => 3.0,
            _ => later(second, narrowed),
        };
        let all = steps(1000, calm);
        assert_eq!(
            all.last_chunk(),
            Some(&[(404, Step::Less), (414, Step::More)])
        );
    }

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
