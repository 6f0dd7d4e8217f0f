//! Payloads with texts, which are made of the programs' records.

/// Takes the first bytes of a record of the programs.
pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (bytes, after) = rest
        .split_first_chunk()
        .expect("the programs write whole records");
    *rest = after;
    *bytes
}

/// A payload after its length: its time, the null bits of the fields that can be NULL, its fields of fixed width and its texts.
pub(crate) fn payload<const N: usize, const TEXTS: usize>(
    out: &mut Vec<u8>,
    at_ns: i64,
    nulls: [bool; N],
    fixed: &[&[u8]],
    texts: [&str; TEXTS],
) {
    let bytes_of = |bytes: usize| {
        let bytes = u16::try_from(bytes).expect("the programs write short records");
        bytes.to_le_bytes()
    };
    let fixed_bytes: usize = fixed.iter().map(|field| field.len()).sum();
    let text_bytes: usize = texts.iter().map(|text| 2 + text.len()).sum();
    let null_bytes = N.div_ceil(8);
    out.extend(bytes_of(8 + null_bytes + fixed_bytes + text_bytes));
    out.extend(at_ns.to_le_bytes());
    out.extend(nulls.chunks(8).map(|nulls| {
        let bits = (0..).zip(nulls).map(|(bit, null)| u8::from(*null) << bit);
        bits.sum::<u8>()
    }));
    fixed.iter().for_each(|field| out.extend_from_slice(field));
    out.extend(texts.map(|text| bytes_of(text.len())).as_flattened());
    texts.iter().for_each(|text| out.extend(text.bytes()));
}
