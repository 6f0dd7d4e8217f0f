//! Reads where the arguments of a static probe are, which the compiler wrote as the assembler does: `-4@%eax`, `8@-8(%rbp)`, `8@[sp, 16]`.

use object::Architecture;

/// An argument: a number, or the one at its address.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    constant: i64,
    /// The offsets of registers, whose values are added.
    base: Option<u32>,
    index: Option<u32>,
    scale: u32,
    is_in_memory: bool,
    pub(crate) bytes: u8,
    pub(crate) is_signed: bool,
}

/// The length of `struct operand` in `bpf/function.bpf.c`.
pub(crate) const OPERAND_BYTES: usize = 32;

/// The registers of x86-64 by their lengths of 8, 4, 2 and 1 bytes, with their offsets in the kernel's `pt_regs`.
const X86: [([&str; 4], u32); 16] = [
    (["rax", "eax", "ax", "al"], 80),
    (["rbx", "ebx", "bx", "bl"], 40),
    (["rcx", "ecx", "cx", "cl"], 88),
    (["rdx", "edx", "dx", "dl"], 96),
    (["rsi", "esi", "si", "sil"], 104),
    (["rdi", "edi", "di", "dil"], 112),
    (["rbp", "ebp", "bp", "bpl"], 32),
    (["rsp", "esp", "sp", "spl"], 152),
    (["r8", "r8d", "r8w", "r8b"], 72),
    (["r9", "r9d", "r9w", "r9b"], 64),
    (["r10", "r10d", "r10w", "r10b"], 56),
    (["r11", "r11d", "r11w", "r11b"], 48),
    (["r12", "r12d", "r12w", "r12b"], 24),
    (["r13", "r13d", "r13w", "r13b"], 16),
    (["r14", "r14d", "r14w", "r14b"], 8),
    (["r15", "r15d", "r15w", "r15b"], 0),
];
/// The offset of the stack pointer of AArch64, behind its 31 registers.
const ARM_STACK: u32 = 248;

/// The arguments of a probe; for one that cannot be read, the reason.
pub(crate) fn operands(text: &str, machine: Architecture) -> Vec<Result<Operand, String>> {
    let read = |word: String| {
        let found = match machine {
            Architecture::Aarch64 => operand(&word, of_arm),
            _ => operand(&word, of_x86),
        };
        found.map_err(|why| format!("'{word}' {why}"))
    };
    words(text).into_iter().map(read).collect()
}

/// The words without their spaces. A space inside brackets ends no word.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut depth = 0_u32;
    for letter in text.chars() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match words.last_mut() {
            Some(word) if !letter.is_whitespace() => word.push(letter),
            _ if depth == 0 => words.push(String::new()),
            _ => {}
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

const UNKNOWN: &str = "is of a form that is not supported";

fn operand(word: &str, place: fn(&str) -> Option<Operand>) -> Result<Operand, &'static str> {
    let (size, at) = word.split_once('@').ok_or(UNKNOWN)?;
    if size.ends_with('f') {
        return Err("is a floating-point number");
    }
    let bytes = size.strip_prefix('-').unwrap_or(size);
    let bytes = bytes
        .parse()
        .ok()
        .filter(|bytes| [1, 2, 4, 8].contains(bytes));
    Ok(Operand {
        bytes: bytes.ok_or(UNKNOWN)?,
        is_signed: size.starts_with('-'),
        ..place(at).ok_or(UNKNOWN)?
    })
}

/// `$5`, `%rax`, `-8(%rbp)` or `8(%rax,%rbx,4)`.
fn of_x86(text: &str) -> Option<Operand> {
    if let Some(constant) = text.strip_prefix('$') {
        return Some(Operand::constant(number(constant)?));
    }
    if let Some(name) = text.strip_prefix('%') {
        return Some(Operand::register(x86(name, &[0, 1, 2, 3])?));
    }
    let (constant, rest) = text.split_once('(')?;
    let mut parts = rest.strip_suffix(')')?.split(',');
    let address = |name: &str| x86(name.strip_prefix('%')?, &[0]);
    let base = parts.next()?;
    let index = parts.next();
    let scale = parts.next().map_or(Some(1), |scale| scale.parse().ok())?;
    if parts.next().is_some() {
        return None;
    }
    Some(Operand {
        constant: if constant.is_empty() {
            0
        } else {
            number(constant)?
        },
        base: if base.is_empty() {
            None
        } else {
            Some(address(base)?)
        },
        index: index.map_or(Some(None), |index| address(index).map(Some))?,
        scale,
        is_in_memory: true,
        ..Operand::constant(0)
    })
}

/// The offset of a register that has one of these lengths.
fn x86(name: &str, lengths: &[usize]) -> Option<u32> {
    let is_named = |names: &[&str; 4]| lengths.iter().any(|at| names.get(*at) == Some(&name));
    let found = X86.iter().find(|(names, _)| is_named(names));
    found.map(|(_, offset)| *offset)
}

/// `5`, `x0`, `[sp]`, `[sp, 16]`, `[x0, x1]` or `[x0, x1, lsl 3]`.
fn of_arm(text: &str) -> Option<Operand> {
    let Some(address) = text.strip_prefix('[') else {
        let constant = number(text.trim_start_matches('#'));
        return match constant {
            Some(constant) => Some(Operand::constant(constant)),
            None if ["xzr", "wzr"].contains(&text) => Some(Operand::constant(0)),
            None => Some(Operand::register(arm(text, &["x", "w"])?)),
        };
    };
    let mut parts = address.strip_suffix(']')?.split(',');
    let base = Some(arm(parts.next()?, &["x"])?);
    let (second, shift) = (parts.next().unwrap_or("0"), parts.next());
    let constant = number(second.trim_start_matches('#'));
    let shift = match shift {
        Some(_) if constant.is_some() => return None,
        Some(shift) => shift
            .strip_prefix("lsl")?
            .trim_start_matches('#')
            .parse()
            .ok()?,
        None => 0_u32,
    };
    if parts.next().is_some() || shift > 3 {
        return None;
    }
    let index = match constant {
        Some(_) => None,
        None => Some(arm(second, &["x"])?),
    };
    Some(Operand {
        base,
        index,
        scale: 1 << shift,
        is_in_memory: true,
        ..Operand::constant(constant.unwrap_or(0))
    })
}

fn arm(name: &str, kinds: &[&str]) -> Option<u32> {
    if name == "sp" {
        return Some(ARM_STACK);
    }
    let number = kinds.iter().find_map(|kind| name.strip_prefix(kind))?;
    let number = number.parse().ok().filter(|number: &u32| *number < 31)?;
    Some(8 * number)
}

fn number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let value = value.ok()?.cast_signed();
    Some(if text.starts_with('-') {
        value.wrapping_neg()
    } else {
        value
    })
}

impl Operand {
    fn constant(constant: i64) -> Operand {
        Operand {
            constant,
            base: None,
            index: None,
            scale: 1,
            is_in_memory: false,
            bytes: 8,
            is_signed: false,
        }
    }

    fn register(offset: u32) -> Operand {
        Operand {
            base: Some(offset),
            ..Operand::constant(0)
        }
    }

    /// A `struct operand`.
    pub(crate) fn encoded(self) -> [u8; OPERAND_BYTES] {
        let [base, index] = [self.base, self.index].map(|register| register.unwrap_or(u32::MAX));
        let words = [
            base,
            index,
            self.scale,
            self.is_in_memory.into(),
            self.bytes.into(),
            self.is_signed.into(),
        ];
        let mut bytes = [0; OPERAND_BYTES];
        let (constant, rest) = bytes.split_at_mut(8);
        constant.copy_from_slice(&self.constant.to_ne_bytes());
        rest.copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, machine: Architecture) -> Operand {
        let [found] = operands(text, machine).try_into().unwrap();
        found.unwrap()
    }

    #[test]
    fn an_argument_is_a_number_a_register_or_at_an_address() {
        use Architecture::{Aarch64, X86_64};
        let memory = |base, index, scale, constant| Operand {
            base,
            index,
            scale,
            is_in_memory: true,
            ..Operand::constant(constant)
        };
        for (text, machine, expected) in [
            ("8@$5", X86_64, Operand::constant(5)),
            ("8@$-0x10", X86_64, Operand::constant(-16)),
            ("8@$18446744073709551615", X86_64, Operand::constant(-1)),
            ("8@%r15", X86_64, Operand::register(0)),
            ("8@%r10d", X86_64, Operand::register(56)),
            ("8@(%rax)", X86_64, memory(Some(80), None, 1, 0)),
            ("8@-8(%rbp)", X86_64, memory(Some(32), None, 1, -8)),
            ("8@(%rax,%rbx,8)", X86_64, memory(Some(80), Some(40), 8, 0)),
            ("8@4(%rax, %rbx)", X86_64, memory(Some(80), Some(40), 1, 4)),
            ("8@16(,%rdi,4)", X86_64, memory(None, Some(112), 4, 16)),
            ("8@5", Aarch64, Operand::constant(5)),
            ("8@#-5", Aarch64, Operand::constant(-5)),
            ("8@xzr", Aarch64, Operand::constant(0)),
            ("8@w19", Aarch64, Operand::register(152)),
            ("8@sp", Aarch64, Operand::register(248)),
            ("8@[sp]", Aarch64, memory(Some(248), None, 1, 0)),
            ("8@[sp, 16]", Aarch64, memory(Some(248), None, 1, 16)),
            ("8@[x29, #-8]", Aarch64, memory(Some(232), None, 1, -8)),
            ("8@[x0, x1, lsl 3]", Aarch64, memory(Some(0), Some(8), 8, 0)),
            ("8@[x0,x1]", Aarch64, memory(Some(0), Some(8), 1, 0)),
        ] {
            assert_eq!(of(text, machine), expected, "{text}");
        }
        let short = Operand {
            bytes: 4,
            is_signed: true,
            ..Operand::register(80)
        };
        assert_eq!(of("-4@%eax", X86_64), short);
        assert_eq!(operands("", X86_64), []);
        assert_eq!(
            operands("8@%rdi  -4@8(%rsp, %rax, 2) 1@$0", X86_64).len(),
            3
        );
    }

    #[test]
    fn a_form_that_is_not_understood_is_refused_and_named() {
        use Architecture::{Aarch64, X86_64};
        for (text, machine) in [
            ("%rax", X86_64),
            ("8@", X86_64),
            ("3@%rax", X86_64),
            ("1@%ah", X86_64),
            ("8@%xmm0", X86_64),
            ("8@counter(%rip)", X86_64),
            ("8@8(%rip)", X86_64),
            ("8@%fs:0", X86_64),
            ("8@8(%eax)", X86_64),
            ("8@(%rax,%rbx,8,8)", X86_64),
            ("8@(%rax", X86_64),
            ("8@x31", Aarch64),
            ("8@[w0]", Aarch64),
            ("8@[x0, w1, sxtw 3]", Aarch64),
            ("8@[x0, 8, lsl 3]", Aarch64),
            ("8@[x0, 8", Aarch64),
        ] {
            let [found] = operands(text, machine).try_into().unwrap();
            let said: String = found.unwrap_err();
            assert!(said.ends_with(UNKNOWN), "{text}: {said}");
        }
        let [found] = operands("8f@%xmm0", X86_64).try_into().unwrap();
        let expected = "'8f@%xmm0' is a floating-point number";
        assert_eq!(found, Err(expected.to_owned()));
    }
}
